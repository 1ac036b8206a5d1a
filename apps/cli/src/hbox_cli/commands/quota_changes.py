"""`hbox quota set`: limit the cards of a namespace, after a preview of the effects."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.model.devices import VENDORS, Vendor

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..output import notify, put
from ..quotas import QuotaEffect, limit_of, quota_effect
from ..session import bus_of, claims_of, jobs_of

#: Of a vendor's resources, by option.
OPTIONS: Mapping[str, Callable[[Vendor], str]] = {
    "gpumem": lambda vendor: vendor.memory,
    "gpucores": lambda vendor: vendor.cores,
    "gpu": lambda vendor: vendor.cards,
}


@click.command("set")
@click.argument("namespace")
@click.argument("name", default="cards")
@click.option("--gpumem", metavar="MIB", help="Maximum memory of all cards together, in MiB; none = no limit.")
@click.option(
    "--gpucores", metavar="PERCENT", help="Maximum compute of all cards together, in percent of one card; none = no limit."
)
@click.option("--gpu", metavar="CARDS", help="Maximum number of cards, whole or partial; none = no limit.")
@click.option(
    "--vendor",
    type=click.Choice([vendor.name for vendor in VENDORS]),
    default=VENDORS.default.name,
    show_default=True,
    help="Vendor of the cards.",
)
@click.option("--dry-run", is_flag=True, help="Print the effects of the change without applying it.")
@platform_options
def set_(ctx: Context, namespace: str, name: str, *, vendor: str, dry_run: bool, **given: str | None) -> None:
    """Change the card limits of the ResourceQuota NAME [cards] in NAMESPACE, or create it; unnamed limits keep their values.

    \b
    hbox quota set team-a --gpumem 80000 --dry-run
    hbox quota set team-a --gpumem none --gpu 8
    """
    limits = limits_of(next(one for one in VENDORS if one.name == vendor), given)
    if not limits:
        raise InvalidRequest("no limit is named that should change", hint=f"hbox quota set {namespace} --gpumem 80000")
    effect = run(lambda: _effect(ctx, namespace, name, limits))
    if not dry_run:
        made = run(lambda: _write(ctx, namespace, name, limits))
        notify(f"{'made' if made else 'changed'} quota {namespace}/{name}")
    if dry_run and not ctx.output.people:
        ctx.output.document("QuotaChange", effect.document())
    elif dry_run:
        put(*(effect.effect_lines() or ["nothing would change"]))
    else:
        for line in effect.effect_lines():
            notify(line)


def limits_of(vendor: Vendor, given: Mapping[str, str | None]) -> dict[str, int | None]:
    """By resource of the vendor's, what options say; None = no limit. Raises InvalidRequest."""
    limits: dict[str, int | None] = {}
    for option, text in given.items():
        if text is not None:
            if not (resource := OPTIONS[option](vendor)):
                raise InvalidRequest(
                    f"--{option}: cards of {vendor.name} are taken whole", hint="limit their number with --gpu"
                )
            limits[resource] = limit_of(f"--{option}", text)
    return limits


async def _effect(ctx: Context, namespace: str, name: str, limits: dict[str, int | None]) -> QuotaEffect:
    async with bus_of(running_of(ctx)) as bus:
        pages = await claims_of(bus)
        jobs, _, why = await jobs_of(bus)
    claims = [claim for page in pages for claim in page.claims]
    return quota_effect(
        [quota for page in pages for quota in page.quotas], claims, jobs, why, namespace=namespace, name=name, given=limits
    )


async def _write(ctx: Context, namespace: str, name: str, limits: dict[str, int | None]) -> bool:
    """Whether it was made anew. Raises InvalidRequest, NotFound where there is no such namespace."""
    from hbox_common.kube import MERGE_PATCH, RESOURCEQUOTAS, KubeClient  # noqa: PLC0415  looking needs no Kubernetes

    hard: dict[str, Any] = {f"limits.{resource}": None if limit is None else str(limit) for resource, limit in limits.items()}
    async with KubeClient.connect(running_of(ctx).kubeconfig or None, user_agent="hbox") as client:
        path = RESOURCEQUOTAS.path(namespace, name)
        try:
            await client.json("PATCH", path, body={"spec": {"hard": hard}}, content_type=MERGE_PATCH)
        except NotFound:
            kept = {key: limit for key, limit in hard.items() if limit is not None}
            body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": kept}}
            await client.json("POST", RESOURCEQUOTAS.path(namespace), body=body)
            return True
    return False

"""`hbox version`."""

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import click

from hbox_common.errors import HBoxError

from ..context import Context, platform_options
from ..exits import Faulty
from ..output import Column, notify, put

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds that a service may take to answer.
ANSWER_S = 3.0
_BUILD = "hbox_build_info{"

COLUMNS = (
    Column("COMPONENT", lambda row: row["name"]),
    Column("VERSION", lambda row: row["version"] or "unknown"),
    Column("SKEW", lambda row: row["skew"]),
)


@click.command("version")
@click.option("--client", is_flag=True, help="Only of this command; asks no platform.")
@click.option("--check", is_flag=True, help="Exit status 1 if a service has another version than this command.")
@platform_options
def command(ctx: Context, *, client: bool, check: bool) -> None:
    """Print the versions of this command and of the platform's services, and whether they differ.

    \b
    hbox version
    hbox version -o json
    hbox version --check

    Versions of services are read from their metrics (a platform of `hbox up`) or from the labels of their Deployments. A command works with services of the
    same minor version; others may lack what it asks for.
    """
    import platform  # noqa: PLC0415

    own = version("hbox-cli")
    services, problem = ({}, "") if client else _services(ctx)
    rows = [{"name": name, "version": found, "skew": _skew(own, found)} for name, found in sorted(services.items())]
    skewed = [row["name"] for row in rows if row["skew"] not in ("none", "unknown")]
    if ctx.output.people:
        put(f"hbox {own}  (Python {platform.python_version()})")
        if rows:
            ctx.output.rows("Component", rows, COLUMNS)
        if skewed:
            notify(
                f"hbox: warning: this command is {own}, and {', '.join(skewed)} of another version: install the same version"
            )
    else:
        found = {"client": {"version": own, "python": platform.python_version()}, "services": rows, "skew": bool(skewed)}
        if ctx.output.machine:
            ctx.output.document("Version", {**found, "problem": problem})
        else:
            ctx.output.rows("Component", [{"name": "hbox", "version": own, "skew": "none"}, *rows], COLUMNS)
    if problem and not client:
        notify(f"hbox: versions of services are unknown: {problem}")
    if check and skewed:
        raise Faulty(f"{', '.join(skewed)}: another version than this command's {own}", hint="install the same version of both")


def _skew(own: str, other: str) -> str:
    """none, patch, minor or major; unknown without a version."""
    if not other:
        return "unknown"
    mine, theirs = own.split("."), other.split(".")
    for name, (a, b) in zip(("major", "minor", "patch"), zip(mine, theirs, strict=False), strict=False):
        if a != b:
            return name
    return "none"


def _services(ctx: Context) -> tuple[dict[str, str], str]:
    """Versions by service, and why they are not known."""
    from ..access import choice_of  # noqa: PLC0415

    try:
        choice = choice_of(ctx)
        if choice.state is not None:
            from ..platform.layout import Layout  # noqa: PLC0415

            return dict(_of_metrics(Layout(choice.state).running().health)), ""
        return dict(_of_deployments(ctx)), ""
    except HBoxError as e:
        return {}, e.message


def _of_metrics(health: Mapping[str, str]) -> "Iterator[tuple[str, str]]":
    from ..access.credentials import Credentials  # noqa: PLC0415
    from ..access.http import Endpoint, Server  # noqa: PLC0415

    for name, base in health.items():
        found = ""
        with suppress(HBoxError):
            for line in Server(Endpoint(base), Credentials(), what=name, answer_s=ANSWER_S).lines("/metrics"):
                text = line.decode(errors="replace")
                if text.startswith(_BUILD) and 'version="' in text:
                    found = text.partition('version="')[2].partition('"')[0]
                    break
        yield name, found


def _of_deployments(ctx: Context) -> "Iterator[tuple[str, str]]":
    from ..access.cluster import Kind, cluster_of  # noqa: PLC0415

    for one in cluster_of(ctx).listed(
        Kind("apps/v1", "Deployment", "deployments"), labelSelector="app.kubernetes.io/part-of=hbox"
    ):
        labels: Mapping[str, Any] = one["metadata"].get("labels") or {}
        name = str(labels.get("app.kubernetes.io/component") or one["metadata"]["name"])
        yield name, str(labels.get("app.kubernetes.io/version", "")).removeprefix("v")

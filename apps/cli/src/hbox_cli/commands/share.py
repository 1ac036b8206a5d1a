"""`hbox share QUEUE`."""

from collections.abc import Mapping
from typing import Any

import click

from hbox_common.model.devices import VENDORS

from ..access import source_of
from ..context import Context, platform_options
from ..output import put


@click.command("share")
@click.argument("queue")
@click.option("--resource", default=VENDORS.default.cards, show_default=True)
@platform_options
def command(ctx: Context, queue: str, resource: str) -> None:
    """Explain the share of QUEUE: deserved, borrowed, used by its siblings, and reclaimable by others; for cards also by model if the queue or
    an ancestor names models, and for other node pools.

    \b
    hbox share train
    hbox share train --resource nvidia.com/gpu.NVIDIA-H100-80GB-HBM3
    hbox share train --resource nvidia.com/gpu@lab      in the pool lab
    hbox share train -o json
    """
    share = source_of(ctx).share(queue, resource)
    if not ctx.output.people:
        ctx.output.document("QueueShare", share)
        return
    for one in (share, *share["models"], *share["pools"]):
        put(*explain(one).split("\n"))


def explain(share: Mapping[str, Any]) -> str:
    lines = [f"{share['name']} has {share['used']} of {share['resource']}: {_share(share['levels'][0])}"]
    if share["wall"]:
        lines.append(f"  nothing more starts: {share['wall']}")
    elif share["room"] is not None:
        lines.append(f"  it may borrow {share['room']} more where cards are free")
    for level in share["levels"]:
        if level["name"] == share["name"]:
            lines += fair_lines(level, share)
        else:
            lines.append(f"{level['name']}, above it, has {level['used']}: {_share(level)}")
            lines += fair_lines(level, share)
        lines += [f"  sibling {_sibling(sibling)}" for sibling in level["siblings"]]
        if level["mayGive"]:
            lines.append(f"  {level['mayGive']} held by {level['name']} can be reclaimed for waiting jobs")
    return "\n".join(lines)


def fair_lines(one: Mapping[str, Any], share: Mapping[str, Any]) -> list[str]:
    """The queue's recent usage, and its effect on the queue's part beyond the deserved amount."""
    fair = one.get("fair")
    if fair is None or not share["halfLifeHours"]:
        return []
    used = (
        f"  recent usage: {fair['recentCards']:g} of {share['cards']} cards on average (half-life {share['halfLifeHours']:g} h)"
    )
    if not share["usageWeight"]:
        return [f"{used}; the policy gives it no weight"]
    if not fair["part"]:
        return [f"{used}; it wants no more than it deserves"]
    beyond = (
        f"weight {fair['weight']:g} is {fair['part']:.0%} of those who want more"
        + f" in priority {fair['priority']}" * bool(fair["priority"])
    )
    turn = (
        "before others" if fair["counts"] > fair["part"] else "after others" if fair["counts"] < fair["part"] else "as written"
    )
    effect = f"  beyond what is deserved its {beyond}, and counts as {fair['counts']:.0%} by what it used: it is served {turn}"
    shares = f"if all go on waiting it has {fair['share']} of {share['cards']}, {fair['shareWithoutHistory']} without history"
    return [used, effect, f"  {shares}"]


def _share(one: Mapping[str, Any]) -> str:
    parts = ["it deserves none of its own" if one["deserved"] is None else f"it deserves {one['deserved']}"]
    if one.get("byWeight") is not None and one["byWeight"] == one["deserved"]:
        parts[0] += f" by its weight of {one['weight']} among those that ask"
    if one["guarantee"]:
        parts.append(f"{one['guarantee']} are guaranteed")
    if one["borrowed"]:
        parts.append(f"{one['borrowed']} are borrowed")
    if one["idle"]:
        parts.append(f"{one['idle']} of its share are not in use")
    if one["waiting"]:
        parts.append(f"{one['waiting']} more are waited for")
    if one["limit"] is not None:
        parts.append(f"limit {one['limit']}")
    return ", ".join(parts)


def _sibling(one: Mapping[str, Any]) -> str:
    takes = f"; it may take {one['mayTake']} back" if one["mayTake"] else ""
    return f"{one['name']} has {one['used']}: {_share(one)}{takes}"

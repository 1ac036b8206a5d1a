"""`hbox share QUEUE`."""

import time
from collections.abc import Mapping
from typing import Any

import click

from hbox_common.model.devices import GPU

from ..aio import run
from ..context import Context, command_options
from ..platform.layout import Layout
from ..queues import read, share_of


@click.command("share")
@click.argument("queue")
@click.option("--resource", default=GPU, show_default=True)
@command_options
def command(ctx: Context, queue: str, resource: str) -> None:
    """Why QUEUE has as much as it has: its share, what it has borrowed, what its siblings use, and who may take what back.

    \b
    hbox share train
    hbox share train -o json
    """
    found = run(lambda: read(Layout(ctx.state).running()))
    share = share_of(found.tree, found.named(queue).name, found.jobs, resource, now=time.time())
    if ctx.output.machine:
        ctx.output.document("QueueShare", share)
        return
    print(explain(share))


def explain(share: Mapping[str, Any]) -> str:
    lines = [f"{share['name']} has {share['used']} of {share['resource']}: {_share(share['levels'][0])}"]
    if share["wall"]:
        lines.append(f"  nothing more starts: {share['wall']}")
    elif share["room"] is not None:
        lines.append(f"  it may borrow {share['room']} more where cards are free")
    for level in share["levels"]:
        if level["name"] != share["name"]:
            lines.append(f"{level['name']}, above it, has {level['used']}: {_share(level)}")
        lines += [f"  beside it {_sibling(sibling)}" for sibling in level["siblings"]]
        if level["mayGive"]:
            lines.append(f"  {level['mayGive']} of what {level['name']} has may be taken back for those who wait")
    return "\n".join(lines)


def _share(one: Mapping[str, Any]) -> str:
    said = ["it deserves none of its own" if one["deserved"] is None else f"it deserves {one['deserved']}"]
    if one["guarantee"]:
        said.append(f"{one['guarantee']} are guaranteed")
    if one["borrowed"]:
        said.append(f"{one['borrowed']} are borrowed")
    if one["idle"]:
        said.append(f"{one['idle']} of its share are not in use")
    if one["waiting"]:
        said.append(f"{one['waiting']} more are waited for")
    if one["limit"] is not None:
        said.append(f"limit {one['limit']}")
    return ", ".join(said)


def _sibling(one: Mapping[str, Any]) -> str:
    takes = f"; it may take {one['mayTake']} back" if one["mayTake"] else ""
    return f"{one['name']} has {one['used']}: {_share(one)}{takes}"

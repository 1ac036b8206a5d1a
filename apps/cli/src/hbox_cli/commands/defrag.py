"""`hbox defrag`: how fragmented idle cards are, and which moves of pods would pay. It changes nothing."""

from collections.abc import Mapping
from typing import Any

import click

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..output import Column, Form, duration, put
from ..session import bus_of

HOUR_S = 3600.0


@click.command("defrag")
@click.option("--shard", default="", metavar="NAME", help="Scheduler shard to query [the first].")
@platform_options
def command(ctx: Context, *, shard: str) -> None:
    """Show how fragmented idle cards are, and which pods would move so that waiting jobs fit. The command changes nothing.

    \b
    hbox defrag
    hbox defrag -o wide                each pod that would move, with source and target node
    hbox defrag -o json

    Pods move if the job gains more card-hours than they lose since their last checkpoint or start, and the policy allows it: HBOX_DEFRAGMENTATION=on
    (or preview), or the action `consolidate` of a volcano-scheduler.conf. Each job is shown as if it were the only one.
    """
    found = run(lambda: _ask(ctx, shard))
    proposals = [_item(one) for one in found.pop("proposals")]
    if ctx.output.machine:
        ctx.output.document("Defragmentation", {**found, "proposals": proposals})
        return
    rows = _moves(proposals) if ctx.output.form in (Form.WIDE, Form.CSV) else proposals
    if ctx.output.form not in (Form.NAME, Form.CSV):
        put(*_lines(found))
    if rows or not ctx.output.people:
        ctx.output.rows("Proposal", rows, _WIDE if ctx.output.form in (Form.WIDE, Form.CSV) else _COLUMNS)
    else:
        put("no job that waits would find room by moves")


async def _ask(ctx: Context, shard: str) -> dict[str, Any]:
    from hbox_common.events.explain import endpoint_of  # noqa: PLC0415  half a second that --help does not need
    from hbox_scheduler.api import DefragmentationAnswer, DefragmentationRequest  # noqa: PLC0415

    async with bus_of(running_of(ctx)) as bus:
        asked = endpoint_of("defragmentation", shard)
        answer = await bus.call("scheduler-core", asked, DefragmentationRequest(), DefragmentationAnswer)
    answered = answer.model_dump(mode="json")
    return {
        "mode": answered["mode"],
        "cards": answered["cards"],
        "idleCards": round(answered["idle_cards"], 2),
        "fragmentCards": round(answered["fragment_cards"], 2),
        "fragmentation": round(answered["fragment_cards"] / answered["cards"], 4) if answered["cards"] else 0.0,
        "largestGangs": answered["largest_gangs"],
        "leftOut": answered["left_out"],
        "unknownPods": answered["unknown_pods"],
        "proposals": answered["proposals"],
    }


def _item(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": one["name"],
        "queue": one["queue"],
        "pays": one["pays"],
        "refused": one["refused"],
        "cardsGained": one["cards_gained"],
        "gainSeconds": round(one["gain_s"], 1),
        "cardHoursGained": round(one["card_seconds_gained"] / HOUR_S, 3),
        "cardHoursLost": round(one["card_seconds_lost"] / HOUR_S, 3),
        "podsRestarted": one["pods_restarted"],
        "moves": [
            {
                "pod": move["pod"],
                "queue": move["queue"],
                "node": move["node"],
                "to": move["to"],
                "cards": move["cards"],
                "lostSeconds": round(move["lost_s"], 1),
            }
            for move in one["moves"]
        ],
    }


def _moves(proposals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a pod that would move."""
    return [{**move, "name": move["pod"], "job": one["name"], "does": _does(one)} for one in proposals for move in one["moves"]]


def _lines(found: dict[str, Any]) -> list[str]:
    idle, lost, largest = found["idleCards"], found["fragmentCards"], found["largestGangs"]
    lines = [
        f"fragmentation  {found['fragmentation']:.1%}: of {found['cards']} cards {idle:g} are idle, and of these {lost:g} of no use to what runs and waits"
    ]
    if largest:
        shapes = ", ".join(f"{pods} x {cards}" for cards, pods in sorted(largest.items(), key=lambda item: int(item[0])))
        lines.append(f"largest gangs  {shapes} whole cards")
    lines.append(f"mode           {found['mode']}")
    if found["unknownPods"]:
        lines.append(f"not moved      {found['unknownPods']} pods: where else they may be is not known to this scheduler-core")
    if found["leftOut"]:
        lines.append(f"left out       {found['leftOut']} jobs that wait behind those that were looked at")
    return lines


def _does(one: Mapping[str, Any]) -> str:
    if not one["refused"]:
        return "moves"
    return "waits" if one["pays"] else "does not pay"


_COLUMNS = (
    Column("JOB", lambda one: one["name"]),
    Column("QUEUE", lambda one: one["queue"]),
    Column("CARDS", lambda one: f"{one['cardsGained']:g}"),
    Column("MOVES", lambda one: len(one["moves"])),
    Column("GAINS CARD-H", lambda one: f"{one['cardHoursGained']:g}"),
    Column("LOSES CARD-H", lambda one: f"{one['cardHoursLost']:g}"),
    Column("DOES", _does),
    Column("WHY", lambda one: one["refused"]),
)

_WIDE = (
    Column("POD", lambda one: one["pod"]),
    Column("QUEUE", lambda one: one["queue"]),
    Column("NODE", lambda one: one["node"]),
    Column("TO", lambda one: one["to"]),
    Column("CARDS", lambda one: one["cards"]),
    Column("LOSES", lambda one: duration(one["lostSeconds"])),
    Column("FOR", lambda one: one["job"]),
    Column("DOES", lambda one: one["does"]),
)

"""`hbox cheat`: the commands of a working day, by what one wants."""

import click

from ..context import Context, command_options
from ..output import Column, put

SHEET = {
    "run work": {
        "hbox run -g 8 -n 4 -- python train.py": "a gang of 4 pods with 8 cards each",
        "hbox submit train.yaml": "the jobs of a file",
        "hbox plan train.yaml": "would it start now, wait, or never start",
        "hbox run -g 1 -f -- nvidia-smi": "one pod, with its log",
    },
    "follow it": {
        "hbox jobs --state-is waiting": "what waits, and why",
        "hbox why train": "what ends the wait, and the smallest change that helps",
        "hbox when train": "when it starts",
        "hbox prio train": "its place in the queue, term by term",
        "hbox show train": "all facts, pods and Events",
        "hbox logs -f train": "the log of its first pod",
        "hbox wait train --for running --timeout 10m": "for scripts",
        "hbox history --since 1d": "jobs that ended, too",
    },
    "change it": {
        "hbox hold train": "do not start it yet (hbox release train)",
        "hbox suspend train": "end its pods, run again later (hbox resume train)",
        "hbox set job train nodes=2": "another size",
        "hbox cancel train": "delete it",
    },
    "share the cluster": {
        "hbox queue tree": "used, deserved and borrowed, with bars",
        "hbox share research": "why a queue has what it has",
        "hbox usage --by department,user": "card-hours",
        "hbox why --evicted train": "for which job its pods were evicted",
    },
    "operate it": {
        "hbox nodes --bad": "nodes out of use, and why",
        "hbox node drain node-7 --reason 'NIC'": "close and empty a node (hbox node undrain node-7)",
        "hbox check": "every component, with remedies",
        "hbox top": "cluster, queues and jobs, live",
        "hbox diag": "an archive for support",
    },
}


@click.command("cheat")
@click.argument("word", required=False)
@command_options
def command(ctx: Context, word: str | None) -> None:
    """Print commands of a working day; with WORD only those that contain it.

    \b
    hbox cheat
    hbox cheat queue
    """
    rows = [
        {"name": line, "does": does, "topic": topic}
        for topic, lines in SHEET.items()
        for line, does in lines.items()
        if word is None or word.lower() in f"{topic} {line} {does}".lower()
    ]
    if not ctx.output.people:
        columns = (
            Column("TOPIC", lambda r: r["topic"]),
            Column("COMMAND", lambda r: r["name"]),
            Column("DOES", lambda r: r["does"]),
        )
        ctx.output.rows("Hint", rows, columns)
        return
    width = max((len(row["name"]) for row in rows), default=0)
    topic = ""
    for row in rows:
        if row["topic"] != topic:
            topic = row["topic"]
            put(f"{topic}:")
        put(f"  {row['name']:<{width}}  {row['does']}")

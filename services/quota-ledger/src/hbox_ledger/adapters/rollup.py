"""Old usage by the day instead of by the hour: sums stay, rows become a twenty-fourth.

A day is one transaction: its rows are taken out, and what came out is put back as one row an account, at the day's first hour. So two processes that do it
at once, or one that is killed, count nothing twice and lose nothing; and an accrual that comes late for an old hour is joined at the next look.
"""

from collections import defaultdict

from sqlalchemy import Connection, delete, func, select

from . import tables as t

DAY_S = 86_400


def sum_up_a_day(connection: Connection, *, before: int) -> int:
    """Sum up the oldest day (UTC) before the second `before` that has rows of other hours than its first. Returns how many rows became one each; 0: there is
    no such day."""
    u = t.usage.c
    first = connection.execute(select(func.min(u.hour)).where(u.hour < before - before % DAY_S, u.hour % DAY_S != 0)).scalar()
    if first is None:
        return 0
    day = first - first % DAY_S
    taken = delete(t.usage).where(u.hour >= day, u.hour < day + DAY_S)
    rows = connection.execute(taken.returning(u.queue, u.namespace, u.model, u.own, u.borrowed, u.idle)).all()
    sums: defaultdict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for queue, namespace, model, *amounts in rows:
        account = sums[queue, namespace, model]
        for kind, amount in enumerate(amounts):
            account[kind] += amount
    if sums:
        connection.execute(
            t.usage.insert(),
            [
                {
                    "hour": day,
                    "queue": queue,
                    "namespace": namespace,
                    "model": model,
                    "own": own,
                    "borrowed": borrowed,
                    "idle": idle,
                }
                for (queue, namespace, model), (own, borrowed, idle) in sums.items()
            ],
        )
    return len(rows)

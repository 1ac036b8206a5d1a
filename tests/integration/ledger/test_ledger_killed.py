"""A ledger killed with -9 in the middle of committing: everything it said was committed is there, nothing is half there."""

import os
from pathlib import Path

from sqlalchemy import func, select

from hbox_ledger.adapters import tables as t

from ... import forked
from ...waiting import until
from .conftest import Kit


async def test_what_was_committed_before_a_kill_is_there_afterwards_and_whole(
    kit: Kit, database_url: str, tmp_path: Path
) -> None:
    url = database_url
    for attempt in range(3):
        out = tmp_path / f"said{attempt}"
        out.touch()
        process = forked.service(f"{__package__}.proposer", url, env=os.environ, out=out)
        try:
            await until(lambda out=out: out.read_text().count("\n") >= 15, timeout_s=60)  # type: ignore[misc]
        finally:
            process.kill()
            await process.wait()
        said = max(map(int, out.read_text().split()))
        async with kit.opened(url) as running:
            pods = set(running.ledger.state.by_pod)
            assert {f"{n}-{i}" for n in range(said + 1) for i in range(3)} <= pods
            assert len(pods) % 3 == 0
            answers, audited = await running.store.read(
                lambda c: (
                    c.execute(select(func.count()).select_from(t.plan_answers)).scalar_one(),
                    c.execute(
                        select(func.count()).select_from(t.audit).where(t.audit.c.change == "none->pending")
                    ).scalar_one(),
                )
            )
            assert answers >= len(pods) == audited

"""A replay in whose end a service is away: whoever was killed is started again, and its answer is waited for."""

import pytest

from hbox_cli.commands import replay
from hbox_common.errors import Unavailable


async def test_who_was_killed_is_asked_until_it_is_back() -> None:
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise Unavailable("nobody listens")
        return "read"

    assert await replay._patiently(ask) == "read"


async def test_who_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "AWAY_S", 0.1)

    async def ask() -> str:
        raise Unavailable("nobody listens")

    with pytest.raises(Unavailable, match="nobody listens"):
        await replay._patiently(ask)

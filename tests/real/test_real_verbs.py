"""`hbox run` and the verbs about its jobs, with Kubernetes' own controller of Jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..e2e.platform_world import Up, until, up


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--api", "assets", "--nodes", "2x8") as running:
        yield running


def done(platform: Up, *arguments: str, status: int = 0) -> str:
    found = platform.hbox(*arguments)
    assert found.returncode == status, f"{found.stdout}{found.stderr}"
    return found.stdout + found.stderr


def test_a_run_starts_as_a_gang_and_ends(platform: Up) -> None:
    assert "2 pods with 8 cards each" in done(platform, "run", "-g", "8", "-n", "2", "--name", "short", "--", "true")
    done(platform, "wait", "short", "--timeout", "60s", "--propagate-exit")
    shown = platform.json("show", "short")
    assert (shown["kind"], shown["state"]) == ("Job", "SUCCEEDED")
    assert "has ended" in done(platform, "hold", "short", status=5)
    assert "already exists" in done(platform, "run", "--name", "short", "--", "true", status=5)
    done(platform, "cancel", "--yes", "short")
    until(lambda: platform.hbox("show", "short").returncode == 3, timeout_s=20, what="its end")


def test_a_pending_run_is_held_released_changed_and_cancelled(platform: Up) -> None:
    done(platform, "run", "-g", "8", "-n", "3", "--name", "big", "--", "true")
    done(platform, "wait", "big", "--for", "bound", "--timeout", "2s", status=124)
    assert "job default/big held" in done(platform, "hold", "big")
    until(lambda: not platform.json("jobs")["items"], timeout_s=20, what="no pod of a held job")
    assert platform.json("show", "big")["state"] == "SUSPENDED"
    assert "job default/big released" in done(platform, "release", "big")
    until(lambda: platform.json("jobs")["items"], timeout_s=20, what="the pods of a released job")
    assert '"suspend":true' in done(platform, "suspend", "big", "--dry-run=server")
    assert "job default/big: gpus 4" in done(platform, "set", "job", "big", "gpus=4")
    done(platform, "wait", "big", "--timeout", "60s")
    done(platform, "cancel", "--yes", "big")

"""The policy's file while the service runs: what is right is followed, what is wrong changes nothing and is said once."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.runtime import WatchedFile
from hbox_scheduler.adapters.policyfile import policy_file
from hbox_scheduler.core.framework.conf import Conf

from ...waiting import until

ALLOCATE = 'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n'
RECLAIM = 'actions: "allocate, reclaim"\ntiers:\n- plugins:\n  - name: gang\n'


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbox_common.runtime.watchedfile.EVERY_S", 0.005)


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[tuple[Path, WatchedFile[Conf], list[Conf]]]:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(ALLOCATE)
    policy, told = policy_file(path), list[Conf]()
    task = asyncio.ensure_future(policy.watch(told.append))
    yield path, policy, told
    assert not task.done()
    task.cancel()


async def test_a_new_policy_is_told_once(followed: tuple[Path, WatchedFile[Conf], list[Conf]]) -> None:
    path, policy, told = followed
    path.write_text(RECLAIM)
    await until(lambda: told)
    path.write_text(RECLAIM + "# the same in other words\n")
    path.write_text(ALLOCATE)
    await until(lambda: len(told) > 1)
    assert [conf.actions for conf in told] == [("allocate", "reclaim"), ("allocate",)]
    assert (policy.value, policy.problem) == (told[-1], "")


async def test_a_mounted_config_map_that_swaps_its_folder_is_followed(tmp_path: Path) -> None:
    """As the kubelet does it: `..data` is a link to a folder of one revision, and is replaced by another link."""
    for revision, text in (("..1", ALLOCATE), ("..2", RECLAIM)):
        (tmp_path / revision).mkdir()
        (tmp_path / revision / "policy").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "policy").symlink_to("..data/policy")
    policy, told = policy_file(tmp_path / "policy"), list[Conf]()
    task = asyncio.ensure_future(policy.watch(told.append))
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    await until(lambda: told)
    task.cancel()
    assert told[0].actions == ("allocate", "reclaim")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('actions: "alocate"', "line 1, column 10: unknown action 'alocate' (did you mean allocate?)"),
        (
            ALLOCATE + "  - name: deviceshare\n    arguments: {deviceshare.SchedulePolicy: best}\n",
            "line 5: plugin deviceshare, argument deviceshare.SchedulePolicy: 'best' (allowed: binpack, spread)",
        ),
        (
            'actions: "consolidate"\nconfigurations:\n- {name: consolidate, arguments: {moves: 3}}',
            "action consolidate has no argument 'moves' (did you mean mode?)",
        ),
        ("", 'the policy is empty (it needs at least `actions: "enqueue, allocate"` and `tiers:`)'),
        (
            b"\xff",
            "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte (it has to be YAML in UTF-8)",
        ),
        (None, "cannot be read: No such file or directory (name a volcano-scheduler.conf)"),
    ],
)
async def test_a_wrong_one_leaves_the_old_in_force_and_is_said_once(
    followed: tuple[Path, WatchedFile[Conf], list[Conf]], caplog: pytest.LogCaptureFixture, text: str | bytes | None, said: str
) -> None:
    path, policy, told = followed
    before = policy.value
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    await until(lambda: policy.problem)
    assert policy.problem == f"HBOX_SCHEDULER_CONF: {path}: {said}"
    path.write_text(ALLOCATE)
    await until(lambda: not policy.problem)
    assert (policy.value, told) == (before, [])
    complaints = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert complaints == [f"HBOX_SCHEDULER_CONF: {path}: {said}; what was in force stays so"]


def test_a_service_does_not_begin_with_a_wrong_policy(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="policy: cannot be read: No such file"):
        policy_file(tmp_path / "policy")


@pytest.mark.parametrize(
    ("plugin", "argument", "off"),
    [("predicates", "predicate.NodeVolumeLimitsEnable: true", "false")],
)
def test_what_could_have_no_effect_in_the_service_is_refused_with_the_reason(
    tmp_path: Path, plugin: str, argument: str, off: str
) -> None:
    path, key = tmp_path / "policy", argument.partition(":")[0]
    text = ALLOCATE + f"  - name: {plugin}\n    arguments: {{{argument}}}\n"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=f"line 5: plugin {plugin}, argument {key}: .* has no effect: ") as refused:
        policy_file(path)
    assert refused.value.hint == f"write {off}, or leave it out"
    path.write_text(text.replace(argument, f"{key}: {off}"))
    assert policy_file(path).value.plugins[-1].name == plugin

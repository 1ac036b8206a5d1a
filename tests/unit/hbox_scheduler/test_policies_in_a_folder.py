"""Scheduler configurations are found where they stand: in files, ConfigMaps, Markdown and Go strings."""

from pathlib import Path

import pytest
from tests.conformance import policies
from tests.conformance.policies import FOLDER, main

FILES = {
    "scheduler.conf": 'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n',
    "map.yaml": 'data:\n  volcano-scheduler.conf: |\n    actions: "allocate"\n    tiers:\n    - plugins:\n      - name: drf\n  other: x\n',
    "guide.md": '# Text\n\n```yaml\n  actions: "elect"\n  tiers:\n  - plugins:\n    - name: gang\n```\nmore\n',
    "conf.go": 'const c = `actions: "allocate"\ntiers:\n- plugins:\n  - name: numa-aware`\n'
    + '// actions: "allocate"\n// tiers:\n// - plugins:\n//   - name: sla\n',
    "again.txt": '\nactions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n\nText.\n',
    "prose.md": "actions: are named, tiers: have plugins\n",
}


def test_each_policy_is_found_once_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "accepted  again.txt:2",
        "accepted  conf.go:1",
        "accepted  conf.go:5",
        "refused   guide.md:4: line 1, column 10: unknown action 'elect', which Volcano 1.16 refuses too (allowed: "
        + "enqueue, allocate, backfill, preempt, reclaim, shuffle, gangpreempt, gangreclaim, consolidate)",
        "accepted  map.yaml:3",
        "4 accepted, 1 refused",
    ]


def test_without_a_folder_the_setting_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(policies.FOLDER, raising=False)
    assert main() == 2
    assert capsys.readouterr().err == "HBOX_POLICY_FILES names no folder\n"

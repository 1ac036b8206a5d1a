"""The journal of remedies: what a start reads of it, also after a kill in a write."""

import os
from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model.remedy import Decision, Outcome, Verb
from hbox_remedy.adapters.journal import KEPT_S, Entry, Journal
from hbox_remedy.core.plan import Ended

NOW = 1_700_000_000.5
RESTORE = (("nvidia-smi", "-i", "GPU-1", "-pm", "1"),)


def entry(incident: str = "i1", *, at: float = NOW, ended: Ended | None = None) -> Entry:
    decision = Decision(incident, "gpu:GPU-1", Verb.RESET, 1, NOW + 60)
    return Entry(decision, "b1", at, restore=RESTORE, ended=ended, ended_at=at if ended else 0.0)


def read(folder: Path, *, now: float = NOW) -> list[Entry]:
    journal = Journal(folder, now=now)
    try:
        return list(journal)
    finally:
        journal.close()


def test_a_start_reads_what_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, now=NOW)
    journal.add(entry("i1"))
    journal.add(entry("i2"))
    done = Ended(Outcome.REFUSED, "processes have the card open", ("1 a", "2 b"))
    journal.end("i2.reset.1", done, at=NOW + 1)
    journal.published("i2.reset.1")
    before = list(journal)
    journal.close()
    assert [(one.ended, one.published) for one in before] == [(None, False), (done, True)]
    assert read(tmp_path) == before


@pytest.mark.parametrize("cut", [1, 20])
def test_a_line_that_a_kill_left_unfinished_is_dropped(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path, now=NOW)
    journal.add(entry("i1"))
    journal.add(entry("i2"))
    journal.close()
    file = tmp_path / "journal.jsonl"
    os.truncate(file, file.stat().st_size - cut)
    journal = Journal(tmp_path, now=NOW)
    assert [one.decision.incident for one in journal] == ["i1"]
    journal.add(entry("i3"))
    journal.close()
    assert [one.decision.incident for one in read(tmp_path)] == ["i1", "i3"], (
        "the next line does not continue the unfinished one"
    )


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"end":"i9.reset.1","ended":{"outcome":"done"},"at":1.0}', '{"entry":{"at":"x"}}', "\xff"]
)
def test_a_finished_line_that_cannot_be_read_is_an_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "journal.jsonl").write_bytes(line.encode("latin-1") + b"\n")
    with pytest.raises(InvalidRequest, match="line 1 of the journal"):
        Journal(tmp_path, now=NOW)


def test_old_entries_are_forgotten_unless_they_have_not_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path, now=NOW)
    journal.add(entry("old", ended=Ended(Outcome.DONE)))
    journal.add(entry("unended"))
    journal.add(entry("new", at=NOW + KEPT_S, ended=Ended(Outcome.DONE)))
    journal.close()
    assert {one.decision.incident for one in read(tmp_path, now=NOW + KEPT_S + 1)} == {"unended", "new"}
    assert {one.decision.incident for one in read(tmp_path)} == {"unended", "new"}


def test_one_journal_is_open_at_a_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path, now=NOW)
    with pytest.raises(Unavailable, match="cannot be opened"):
        Journal(tmp_path, now=NOW)
    journal.close()
    assert read(tmp_path) == []


def test_a_beginning_that_is_not_written_does_not_count_and_an_end_does(tmp_path: Path) -> None:
    journal = Journal(tmp_path, now=NOW)
    journal.add(entry("i1"))
    writable, journal._file = journal._file, os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(Unavailable, match="cannot be written"):
        journal.add(entry("i2"))
    with pytest.raises(Unavailable):
        journal.end("i1.reset.1", Ended(Outcome.DONE), at=NOW)
    assert "i2.reset.1" not in journal
    assert journal["i1.reset.1"].ended == Ended(Outcome.DONE)
    os.close(journal._file)
    journal._file = writable
    journal.close()
    assert read(tmp_path) == [entry("i1")]

"""The tables of planted faults, one TOML file a service (or part of the common library) under `tables/`.

[a-fence-on-a-bound-pod]                       # the fault's name, unique in its table
file = "services/binder/src/hbox_binder/…"     # from the repository's root
old = "…"                                      # stands exactly once in the file
new = "…"                                      # what the fault puts there
breaks = "A pod that is bound gets a fence."   # what a user would suffer
tests = ["tests/unit/hbox_binder/test_x.py::test_y"]   # at least one of them fails; the nearest to the code, and quick
uncaught = "…"                                 # only where no near test can see it: the reason
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).parent / "tables"


class BadTable(Exception):
    """A table that does not say what a table has to say; the message names it."""


@dataclass(frozen=True, slots=True)
class Mutant:
    service: str
    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    uncaught: str = ""

    @property
    def title(self) -> str:
        return f"{self.service}/{self.name}"

    def patched(self, source: str) -> str | None:
        """`source` with the fault in it; None where its text does not stand there exactly once."""
        return source.replace(self.old, self.new) if source.count(self.old) == 1 else None


def read_tables(folder: Path = TABLES) -> tuple[Mutant, ...]:
    """All planted faults, by table and in its order. Raises BadTable."""
    return tuple(mutant for path in sorted(folder.glob("*.toml")) for mutant in _read(path))


def chosen(mutants: Sequence[Mutant], *, services: Sequence[str], words: Sequence[str]) -> tuple[Mutant, ...]:
    """Those of `services` (none: of all) whose title has one of `words` in it (none: all)."""
    return tuple(
        m for m in mutants if (not services or m.service in services) and (not words or any(word in m.title for word in words))
    )


def _read(path: Path) -> list[Mutant]:
    try:
        entries = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as e:
        raise BadTable(f"{path.name}: {e}") from e
    mutants = []
    for name, entry in entries.items():
        tests = entry.pop("tests", [])
        try:
            mutant = Mutant(service=path.stem, name=name, tests=tuple(tests), **entry)
        except TypeError as e:
            raise BadTable(f"{path.name}: {name}: {e}") from e
        if not mutant.tests:
            raise BadTable(f"{path.name}: {name}: no tests")
        if mutant.old == mutant.new or not mutant.old:
            raise BadTable(f"{path.name}: {name}: changes nothing")
        mutants.append(mutant)
    return mutants

"""The tables of planted faults, one TOML file a service (or part of the common library) under `tables/`.

[a-fence-on-a-bound-pod]                       # the fault's name, unique in its table
file = "services/binder/src/hbox_binder/…"     # from the repository's root
old = "…"                                      # stands exactly once in the file
new = "…"                                      # what the fault puts there
breaks = "A pod that is bound gets a fence."   # what a user would suffer
tests = ["tests/unit/hbox_binder/test_epochs.py::test_…"]   # at least one of them fails; the nearest to the code, and quick
uncaught = "…"                                 # only where no near test can see it: the reason
"""

import ast
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLES = Path(__file__).parent / "tables"
#: At most so many of all planted faults may have a reason instead of a test.
MOST_UNCAUGHT = 0.03


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


def faults_of(mutants: Sequence[Mutant], root: Path) -> Iterator[str]:
    """What is wrong with the tables themselves, without running anything: texts that do not stand in their file exactly once, faults that are no Python,
    tests that do not exist, too many reasons. `root`: of the repository."""
    for mutant in mutants:
        path = root / mutant.file
        if not path.is_file():
            yield f"{mutant.title}: no file {mutant.file}"
            continue
        source = path.read_text()
        patched = mutant.patched(source)
        if patched is None:
            yield f"{mutant.title}: its text stands {source.count(mutant.old)} times in {mutant.file}"
            continue
        try:
            compile(patched, mutant.file, "exec")
        except SyntaxError as e:
            yield f"{mutant.title}: {mutant.file} is no Python with it: {e.msg}"
        for test in mutant.tests:
            file, _, name = test.partition("::")
            if not (root / file).is_file() or (name and name.split("[")[0] not in _functions(root / file)):
                yield f"{mutant.title}: no test {test}"
    reasons = sum(bool(mutant.uncaught) for mutant in mutants)
    if reasons > MOST_UNCAUGHT * len(mutants):
        yield f"{reasons} of {len(mutants)} faults have a reason instead of a test: more than {MOST_UNCAUGHT:.0%}"


@cache
def _functions(path: Path) -> frozenset[str]:
    """Names of the functions of a file, and of those that it takes from others (`from ... import`)."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return frozenset(names)


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

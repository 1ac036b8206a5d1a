"""The tables of planted faults: one TOML file per service, or part of the common library, under `tables/`.

[a-fence-on-a-bound-pod]                       # the fault's name, unique in its table
file = "services/binder/src/hbox_binder/…"     # from the repository's root
old = "…"                                      # occurs exactly once in the file
new = "…"                                      # its replacement
breaks = "A pod that is bound gets a fence."   # the effect for a user
tests = ["tests/unit/hbox_binder/test_epochs.py::test_…"]   # at least one must fail; fast tests, nearest to the code
uncaught = "…"                                 # only if no near test can detect it: the reason
"""

import ast
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

TABLES = Path(__file__).parent / "tables"
#: At most so many of all planted faults may have a reason instead of a test.
MOST_UNCAUGHT = 0.03


class BadTable(Exception):
    """An invalid table; the message names table and fault."""


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
        """`source` with the fault; None if the text to replace does not occur exactly once."""
        return source.replace(self.old, self.new) if source.count(self.old) == 1 else None


def read_tables(folder: Path = TABLES) -> tuple[Mutant, ...]:
    """All planted faults, by table and in its order. Raises BadTable."""
    return tuple(mutant for path in sorted(folder.glob("*.toml")) for mutant in _read(path))


def chosen(mutants: Sequence[Mutant], *, services: Sequence[str], words: Sequence[str]) -> tuple[Mutant, ...]:
    """Faults of `services` (none: all) whose title contains one of `words` (none: all)."""
    return tuple(
        m for m in mutants if (not services or m.service in services) and (not words or any(word in m.title for word in words))
    )


def faults_of(mutants: Sequence[Mutant], root: Path) -> Iterator[str]:
    """Errors of the tables, found without a run: texts that do not occur exactly once, replacements that are no valid Python, missing tests, too many
    faults with a reason instead of a test. `root`: the repository."""
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
            if path.suffix == ".yaml":
                yaml.safe_load(patched)
            else:
                compile(patched, mutant.file, "exec")
        except (SyntaxError, yaml.YAMLError) as e:
            yield f"{mutant.title}: {mutant.file} is invalid with it: {e}"
        for test in mutant.tests:
            file, _, name = test.partition("::")
            if not (root / file).is_file() or (name and name.split("[")[0] not in _functions(root / file)):
                yield f"{mutant.title}: no test {test}"
    reasons = sum(bool(mutant.uncaught) for mutant in mutants)
    if reasons > MOST_UNCAUGHT * len(mutants):
        yield f"{reasons} of {len(mutants)} faults have a reason instead of a test: more than {MOST_UNCAUGHT:.0%}"


@cache
def _functions(path: Path) -> frozenset[str]:
    """Names of the functions that a file defines or imports (`from ... import`)."""
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

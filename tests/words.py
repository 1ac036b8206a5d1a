"""Counts idiom words in the project's text; `make check` fails when a count exceeds its ceiling in tests/words.toml.

Four kinds of text are counted for each package or folder of documents: `prose` (docstrings and comments), `strings` (literals: settings, metrics, help,
Events, reasons, errors), `names` (identifiers) and `documents` (Markdown, alerts, chart). `--write` lowers the ceilings to the present counts and never
raises one. `--list KIND PLACE` prints each line that counts.
"""

import argparse
import ast
import io
import re
import subprocess
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

CEILINGS = Path(__file__).with_suffix(".toml")
#: `tell-owner` is an action of health judgements, a word of the case format.
WORDS = re.compile(
    r"\b(told|tells?(?!-owner)|said|says|saying|heard|hears|whom|whoever|nobody|nobody's|somebody|somebody's|of\s+late|is\s+had|are\s+had|goes|beside|stands)\b",
    re.I,
)
NAME_PARTS = frozenset(
    (
        "said",
        "told",
        "tell",
        "tells",
        "say",
        "says",
        "heard",
        "alike",
        "words",
        "who",
        "whom",
        "whoever",
        "nobody",
        "somebody",
        "beside",
        "goes",
        "stands",
    )
)
DOCUMENTS = (".md", ".yaml", ".tpl", ".txt")

Line = tuple[str, str, int, str]  # kind, file, line number, text


def lines_of(path: str, source: str) -> Iterator[Line]:
    """The text of a Python file, by kind: one item per comment, literal or identifier."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield "prose" if id(node) in docstrings else "strings", path, node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "prose", path, token.start[0], token.string
        elif token.type == tokenize.NAME:
            yield "names", path, token.start[0], token.string


def text() -> Iterator[tuple[str, Line]]:
    """Each piece of text with its place: a package (`libs/common`), a folder of documents (`docs/guides`) or a file at the top."""
    for path in subprocess.check_output(["git", "ls-files"], text=True).split():
        parts = path.split("/")
        place = "/".join(parts[: 1 if parts[0] in ("tests", "helm") or len(parts) == 1 else 2])
        if path.endswith(".py"):
            yield from ((place, line) for line in lines_of(path, Path(path).read_text()))
        elif path.endswith(DOCUMENTS) and path != "CHANGELOG.md":
            for number, line in enumerate(Path(path).read_text().splitlines(), 1):
                titled = path.startswith("docs/adr/") and number == 1
                yield place, ("titles" if titled else "documents", path, number, line)


def hits(kind: str, text: str) -> int:
    """Idiom words in a piece of text of this kind."""
    return len(NAME_PARTS.intersection(text.lower().split("_"))) if kind == "names" else len(WORDS.findall(text))


def main() -> int:
    """Compare the counts with their ceilings; 1 if one is exceeded."""
    options = argparse.ArgumentParser(prog="python -m tests.words", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--write", action="store_true", help="lower the ceilings to the present counts")
    options.add_argument("--list", nargs=2, metavar=("KIND", "PLACE"), help="print each line that counts")
    chosen = options.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for place, (kind, path, number, piece) in text():
        found = hits(kind, piece)
        counts[kind, place] += found
        if found and chosen.list == [kind, place]:
            print(f"{path}:{number}: {' '.join(piece.split())}")
    if chosen.list:
        return 0
    ceilings: dict[str, dict[str, int]] = tomllib.loads(CEILINGS.read_text()) if CEILINGS.exists() else {}
    above = {key: n for key, n in counts.items() if n > ceilings.get(key[0], {}).get(key[1], 0)}
    if chosen.write:
        kept = {key: min(n, ceilings.get(key[0], {}).get(key[1], n)) for key, n in counts.items()}
        rows: list[str] = []
        for kind in sorted({kind for (kind, _), n in kept.items() if n}):
            rows.append(f"[{kind}]")
            rows += [f'"{place}" = {n}' for (k, place), n in sorted(kept.items()) if k == kind and n]
        CEILINGS.write_text("\n".join(rows) + "\n")
    for (kind, place), n in sorted(above.items()):
        allowed = ceilings.get(kind, {}).get(place, 0)
        print(
            f"{place}: {n} idiom words in {kind}, {allowed} allowed; `python -m tests.words --list {kind} {place}` shows them"
        )
    return bool(above)


if __name__ == "__main__":
    raise SystemExit(main())

"""Checks the index of the decisions, or writes it with `--write`: one row per file of docs/adr, and every number is used or withdrawn."""

import sys
from pathlib import Path

ADR = Path("docs/adr")
INDEX = ADR / "README.md"
#: Numbers of drafts that were withdrawn before they were decided.
WITHDRAWN = (22, 24, 35, 43, 44, 46, 47, 49, 50, 60, 75, 78)
#: Numbers of decisions that are being written; empty once all of them are there.
RESERVED = frozenset({*range(102, 109), *range(111, 120)})
HEAD = """# Decisions

Each decision has its context, rejected alternatives and consequences. If a later decision changes one, the text is edited and links the later one.

| | |
|---|---|
"""


def index() -> str:
    """The text of the index. Raises ValueError if a number is missing, withdrawn and used, or differs between a file and its title."""
    rows, numbers = [], set(WITHDRAWN)
    for file in sorted(ADR.glob("[0-9]*.md")):
        title = file.read_text().split("\n", 1)[0]
        number = int(file.name[:4])
        if not title.startswith(f"# {number}. ") or number in numbers:
            raise ValueError(f"{file}: the title {title!r} needs the number {number}, which no other decision has")
        numbers.add(number)
        rows.append(f"| [{number}]({file.name}) | {title.partition('. ')[2]} |")
    if missing := set(range(1, max(numbers) + 1)) - numbers - RESERVED:
        raise ValueError(f"{ADR}: no decision has the number {min(missing)}")
    return HEAD + "\n".join(rows) + f"\n\nWithdrawn before they were decided: {', '.join(map(str, WITHDRAWN))}.\n"


def main() -> int:
    """Compare the index with the files; 1 if they differ."""
    text = index()
    if "--write" in sys.argv:
        INDEX.write_text(text)
    if not INDEX.exists() or INDEX.read_text() != text:
        print(f"{INDEX}: out of date; `make docs` regenerates it")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

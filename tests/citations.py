"""Checks that everything that comments and documents cite exists; `make check` runs it.

Checked are comments and docstrings of Python files, and the whole text of documents, tables and charts:

- `(sources: hami-fit)`: a heading of docs/reference/sources.md; headings that nothing cites are refused, too.
- `S7`, `requirements B4`, `threat T4`, `ADR 41`: an entry of docs/reference/invariants.md, requirements.md, threats.md, a file of docs/adr.
- Paths from the top of the repository, file names of modules in backquotes, modules of the same distribution (`queueing.jobs`) and of others
  (`hbox_common.model.lending`), and names that a text places in a module: "`Entry.state` in `queueing/jobs.py`", "`core/arbitrate.py::propose`".
- Relative links of Markdown, with the heading that they lead to.

The changelog states what was true at its time and is left out.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import NamedTuple

REFERENCE = "docs/reference"
TEXTS = (".md", ".toml", ".yaml", ".tpl", ".c", ".h", ".sh", "Makefile", "Dockerfile")
LEFT_OUT = ("CHANGELOG.md", "tests/unit/test_citations.py", "tests/citations.py")
TOP = "apps|libs|services|tests|docs|helm|image|compose"

_SOURCES = re.compile(r"[(;\[]\s*sources:\s+([^()\[\]]*)[)\]]")
_CHAPTER = re.compile(r"(?<!\d )§|\breference (?:hami|volcano|peers|performance|reliability|ecosystem|fabric\S*|on fabrics)\b")
#: Not a model's name in quotes ("S60"); a docstring may begin with an invariant.
_INVARIANT = re.compile(r"(?<![\w'/.-])(?<!(?<!\")\")S(\d{1,2})\b(?![-/.]\w)")
_REQUIREMENT = re.compile(r"\brequirements?\s+([A-H]\d{1,2})\b")
_THREAT = re.compile(r"\b[Tt]hreats?\s+(T\d+)\b")
_DECISION = re.compile(r"\bADRs?\s+(\d+)\b")
#: Neither a group of Kubernetes' API (apps/v1) nor a path with a placeholder in capitals.
_PATH = re.compile(rf"(?<![\w/.~$}}-])(?!apps/v\d|[\w./*-]*/(?!README)[A-Z]+\b)((?:{TOP})/[\w./*-]*\w)(?![\w/]*[<{{])")
_MODULE_FILE = re.compile(r"`(\.?[\w-]+(?:/[\w-]+)*\.py)(?:::([\w.]+))?`")
_DOTTED = re.compile(r"(?<![\w./-])(hbox_[a-z]+(?:\.[A-Za-z_]\w*)+)\b(?!\.(?:md|json|yaml))")
_NEIGHBOUR = re.compile(r"`([a-z]\w*)\.([a-z]\w*)((?:\.\w+)*)(?:\(\))?`")
_NAME_IN_FILE = re.compile(
    r"`([A-Za-z_][\w.]*?)(?:\(\))?`(?: and `([A-Za-z_][\w.]*?)(?:\(\))?`)? (?:in|of) \[?`([\w./-]+\.py)`"
)
_FILE_THEN_NAME = re.compile(r"`([\w./-]+\.py)`\]?(?:\([^)]*\))?, `(?![\w.]*\.py`)([A-Za-z_][\w.]*?)(?:\(\))?`")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_MARKER = re.compile(r"^ *#:?", re.MULTILINE)
_HEADING = re.compile(r"^#+ +(.*?)\s*$", re.MULTILINE)
_ITEM = re.compile(r"^ +- `([^`]+)`$", re.MULTILINE)


class Problem(NamedTuple):
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def prose(source: str) -> str:
    """The comments and docstrings of a Python file, each at its place; everything else is blank."""
    lines = source.split("\n")
    kept = [[" "] * len(line) for line in lines]
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins):
            (first, start), (last, end) = token.start, token.end
            for row in range(first - 1, last):
                begin, stop = (start if row == first - 1 else 0), (end if row == last - 1 else len(lines[row]))
                kept[row][begin:stop] = lines[row][begin:stop]
            if token.type == tokenize.COMMENT:
                hashes = len(token.string) - len(token.string.lstrip("#:"))
                kept[first - 1][start : start + hashes] = " " * hashes
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    return "\n".join("".join(line) for line in kept)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"<[^>]*>|\[([^\]]*)\]\([^)]*\)|`", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@dataclass
class Tree:
    """The tracked files below `root`."""

    root: Path
    files: Sequence[str]
    _texts: dict[str, str] = field(default_factory=dict)
    _anchors: dict[str, frozenset[str]] = field(default_factory=dict)
    _defined: dict[str, frozenset[str]] = field(default_factory=dict)

    def read(self, file: str) -> str:
        if file not in self._texts:
            self._texts[file] = (self.root / file).read_text(errors="replace")
        return self._texts[file]

    @cached_property
    def names(self) -> frozenset[str]:
        """Every file and every folder that has one."""
        return frozenset(self.files).union(str(parent) for file in self.files for parent in Path(file).parents)

    @cached_property
    def packages(self) -> dict[str, str]:
        """The folder of each distribution's package: `hbox_common` is in libs/common/src."""
        return {name.rpartition("/")[2]: name for name in self.names if "/src/" in name and name.split("/")[-2] == "src"}

    @cached_property
    def folders(self) -> dict[str, list[str]]:
        """The folders of packages, by their last name."""
        found: dict[str, list[str]] = {}
        for file in self.files:
            if "/src/" in file and file.endswith("/__init__.py"):
                found.setdefault(file.split("/")[-2], []).append(file.removesuffix("/__init__.py"))
        return found

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for file in self.files:
            found.setdefault(file.rpartition("/")[2], []).append(file)
        return found

    def ending(self, path: str) -> list[str]:
        """Files whose path ends with these components."""
        name = path.rpartition("/")[2]
        return [file for file in self.by_name.get(name, ()) if f"/{file}".endswith(f"/{path}")]

    def has(self, path: str) -> bool:
        if "*" in path:
            pattern = re.compile(re.escape(path).replace(r"\*", "[^/]*"))
            return any(pattern.fullmatch(name) for name in self.names)
        return path in self.names

    def defines(self, file: str, dotted: str) -> bool:
        """Whether a module defines or imports a name, or a class of it the attribute after the dot."""
        if file.endswith(".py"):
            if file not in self._defined:
                self._defined[file] = _defined(self.read(file))
            return self._defined[file].issuperset(dotted.split("."))
        return re.search(rf"\b{re.escape(dotted)}\b", self.read(file)) is not None

    def imports(self, dotted: str) -> bool:
        """Whether `hbox_x.a.b` is a module, a package or a name in one."""
        package, *rest = dotted.split(".")
        if not (at := self.packages.get(package, "")):
            return False
        for i, part in enumerate(rest):
            if f"{at}/{part}" in self.names:
                at = f"{at}/{part}"
                continue
            module = f"{at}/{part}.py" if f"{at}/{part}.py" in self.names else f"{at}/__init__.py"
            names = rest[i + 1 :] if module != f"{at}/__init__.py" else rest[i:]
            return module in self.names and (not names or self.defines(module, ".".join(names)))
        return True

    def anchors(self, file: str) -> frozenset[str]:
        """Where a link into a document may lead."""
        if file not in self._anchors:
            text = self.read(file)
            explicit = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)
            self._anchors[file] = frozenset(slug(heading) for heading in _HEADING.findall(text)).union(explicit)
        return self._anchors[file]

    def entries(self, page: str, pattern: str) -> frozenset[str]:
        """What a page of docs/reference defines; nothing if the page is missing."""
        file = f"{REFERENCE}/{page}.md"
        return frozenset(re.findall(pattern, self.read(file), re.MULTILINE)) if file in self.names else frozenset()


def _defined(source: str) -> frozenset[str]:
    """Names that a module defines anywhere: functions, classes, attributes, arguments and imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).rpartition(".")[2])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return frozenset(names)


class References:
    """What docs/reference and docs/adr define, and which sources are cited."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.sources = tree.entries("sources", r"^### ([a-z0-9-]+)$")
        self.cited: set[str] = set()
        self._numbered = (
            (_INVARIANT, tree.entries("invariants", r"^## S(\d+)$"), "invariants.md"),
            (_REQUIREMENT, tree.entries("requirements", r"</a>([A-H]\d+) \|"), "requirements.md"),
            (_THREAT, tree.entries("threats", r"^\| (T\d+) \|"), "threats.md"),
        )
        self._decisions = {int(file[9:13]) for file in tree.files if re.match(r"docs/adr/\d{4}-", file)}

    def wrong(self, text: str) -> Iterator[tuple[int, str]]:
        """Citations in a text that lead nowhere, by their place in it."""
        for match in _SOURCES.finditer(text):
            for anchor in re.split(r",\s+", match[1]):
                self.cited.add(anchor)
                if anchor not in self.sources:
                    yield (
                        match.start(),
                        f"no source {anchor!r}: add the heading to {REFERENCE}/sources.md, or cite a present one",
                    )
        for match in _CHAPTER.finditer(text):
            if "RFC" not in text[max(0, match.start() - 12) : match.start()]:
                what = f"cites a document outside the repository: write (sources: ANCHOR), an anchor of {REFERENCE}/sources.md"
                yield match.start(), what
        for pattern, known, page in self._numbered:
            for match in pattern.finditer(text):
                if match[1] not in known:
                    yield match.start(), f"{match[0]!r} is not defined: add it to {REFERENCE}/{page}, or correct the number"
        for match in _DECISION.finditer(text):
            if int(match[1]) not in self._decisions:
                yield match.start(), f"no decision {match[1]} in docs/adr: correct the number"

    def uncited(self) -> Iterator[Problem]:
        """Sections of the sources that nothing cites."""
        file = f"{REFERENCE}/sources.md"
        if self.sources - self.cited:
            for match in _HEADING.finditer(text := self._tree.read(file)):
                if match[1] in self.sources - self.cited:
                    yield Problem(
                        file, text.count("\n", 0, match.start()) + 1, f"nothing cites {match[1]!r}: remove the section"
                    )


def problems(root: Path, files: Sequence[str]) -> list[Problem]:
    """Everything cited in these files that does not exist."""
    tree = Tree(root, files)
    references = References(tree)

    def wrong(file: str, text: str) -> list[tuple[int, str]]:
        links = _links(tree, file, text) if file.endswith(".md") else ()
        return [*references.wrong(text), *_paths(tree, file, text), *links]

    found: list[Problem] = []
    for file in files:
        if file in LEFT_OUT or not file.endswith((".py", *TEXTS)) or (root / file).is_symlink():
            continue
        text = tree.read(file)
        if file.endswith(".py"):
            # Few files have anything like a wrong citation; only there comments are separated from code, which takes ten times as long.
            if not wrong(file, _MARKER.sub(lambda match: " " * len(match[0]), text)):
                continue
            text = prose(text)
        found += [Problem(file, text.count("\n", 0, at) + 1, what) for at, what in wrong(file, text)]
    return sorted({*found, *_unattacked(tree), *references.uncited()})


def _paths(tree: Tree, file: str, text: str) -> Iterator[tuple[int, str]]:
    """Paths, modules and names in them that do not exist."""
    for match in _PATH.finditer(text):
        if not tree.has(match[1]):
            yield match.start(), f"no file or folder {match[1]}: name the present path"
    for match in _MODULE_FILE.finditer(text):
        modules = tree.ending(match[1])
        if not modules:
            yield match.start(), f"no module {match[1]}: name the present one"
        elif match[2] and not any(tree.defines(module, match[2]) for module in modules):
            yield match.start(), f"{match[1]} has no {match[2]}: name the present module and name"
    for match in _DOTTED.finditer(text):
        if not tree.imports(match[1]):
            yield match.start(), f"no module or name {match[1]}: name the present one"
    distribution, below, _ = file.partition("/src/")
    for match in _NEIGHBOUR.finditer(text) if below else ():
        here = [folder for folder in tree.folders.get(match[1], ()) if folder.startswith(f"{distribution}/src/")]
        modules = [folder.partition("/src/")[2].replace("/", ".") for folder in here]
        if here and not any(tree.imports(f"{module}.{match[2]}{match[3]}") for module in modules):
            yield match.start(), f"no module or name {match[1]}.{match[2]} in {distribution}: name the present one"
    if file.endswith(".md"):
        pairs = [(m.start(), m[3], name) for m in _NAME_IN_FILE.finditer(text) for name in (m[1], m[2]) if name]
        pairs += [(m.start(), m[1], m[2]) for m in _FILE_THEN_NAME.finditer(text)]
        for at, path, name in pairs:
            modules = tree.ending(path)
            if modules and not any(tree.defines(module, name) for module in modules):
                yield at, f"{path} has no {name}: name the present module and name"


def _links(tree: Tree, file: str, text: str) -> Iterator[tuple[int, str]]:
    """Relative links that lead to no file, or to no heading of it."""
    for match in _LINK.finditer(text):
        path, _, anchor = match[1].partition("#")
        if ":" in path or path.startswith("/"):
            continue
        target = file if not path else normpath(join(dirname(file), path))
        if not tree.has(target):
            yield match.start(), f"the link leads to {target}, which does not exist: name the present path"
        elif anchor and target.endswith(".md") and anchor not in tree.anchors(target):
            yield match.start(), f"{target} has no heading #{anchor}: link a present one"


def _unattacked(tree: Tree) -> Iterator[Problem]:
    """Invariants without code that enforces them or without a test, and entries of them that do not exist."""
    file = f"{REFERENCE}/invariants.md"
    if file not in tree.names:
        return
    text = tree.read(file)
    starts = [*re.finditer(r"^## (S\d+)$", text, re.MULTILINE)]
    for start, end in zip(starts, [*(s.start() for s in starts[1:]), len(text)], strict=True):
        section = text[start.end() : end]
        line = text.count("\n", 0, start.start()) + 1
        enforced, _, attacked = section.partition("- Attacked by:")
        for what, part in (("code that enforces it", enforced), ("test that attacks it", attacked)):
            if not _ITEM.search(part):
                yield Problem(file, line, f"{start[1]} names no {what}: add one as `path::name`")
        for item in _ITEM.finditer(section):
            path, _, name = item[1].partition("::")
            at = line + section.count("\n", 0, item.start())
            if path not in tree.names:
                yield Problem(file, at, f"{start[1]}: no file {path}: name the present path")
            elif name and not tree.defines(path, name):
                yield Problem(file, at, f"{start[1]}: {path} has no {name}: name the present one")


def main() -> int:
    """Print each citation that leads nowhere; 1 if there is one."""
    files = subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard"], text=True).split("\n")
    found = problems(Path(), [file for file in files if file and Path(file).is_file()])
    for problem in found:
        print(problem)
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())

"""The tables of rights in docs/guides/rbac.md, from the chart's files: `python -m hbox_cli.platform.rights --check|--write CHART GUIDE`.

A row is a rule of a (cluster) role; the comment of the rule in the file is its reason. `--write` replaces the text between the markers of the guide.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

BEGIN = "<!-- {name}: made by `make docs` from {files} -->"
END = "<!-- end of {name} -->"

_HEAD = ("API group", "resource", "verbs", "for")


def services(chart: Path) -> str:
    """The table of the services' accounts."""
    lines = []
    for path in sorted((chart / "files" / "rbac").glob("*.yaml")):
        text = path.read_text()
        rows = list(_rows(text))
        if not rows:
            rows = [("", "", "", _sentence([line[2:] for line in text.splitlines()[:1]]))]
        lines += [(path.stem if i == 0 else "", *row) for i, row in enumerate(rows)]
    return _table(("account", *_HEAD), lines)


def tenants(chart: Path) -> str:
    """The table of the ClusterRoles for people."""
    lines = []
    for document in (chart / "files" / "tenants.yaml").read_text().split("\n---\n"):
        metadata = yaml.safe_load(document)["metadata"]
        part = "".join(f", part of `{label.rpartition('-')[2]}`" for label in metadata.get("labels", ()))
        rows = list(_rows(document))
        lines += [(f"`{metadata['name']}`{part}" if i == 0 else "", *row) for i, row in enumerate(rows)]
    return _table(("ClusterRole", *_HEAD), lines)


def _rows(text: str) -> Iterator[tuple[str, str, str, str]]:
    for document in text.split("\n---\n"):
        found = yaml.safe_load(document)
        if found["kind"] not in ("ClusterRole", "Role"):
            continue
        where = f", in `{found['metadata']['namespace']}`" if found["kind"] == "Role" else ""
        for rule, reason in zip(found["rules"], _comments(document), strict=True):
            yield _groups(rule), f"{_resources(rule)}{where}", ", ".join(rule["verbs"]), reason


def _comments(document: str) -> Iterator[str]:
    """The comment before each rule; a rule without a comment has that of the rule before."""
    comment: list[str] = []
    reason = ""
    for line in document.partition("\nrules:\n")[2].splitlines():
        if line.startswith("# "):
            comment.append(line[2:])
        elif line.startswith("- apiGroups:"):
            reason, comment = _sentence(comment) or reason, []
            yield reason


def _sentence(lines: Sequence[str]) -> str:
    text = " ".join(line.strip() for line in lines).rstrip(".")
    first = text.partition(" ")[0]
    return text[:1].lower() + text[1:] if first[1:].islower() or len(first) == 1 else text


def _groups(rule: dict[str, Any]) -> str:
    return ", ".join(group or "core" for group in rule["apiGroups"])


def _resources(rule: dict[str, Any]) -> str:
    names = rule.get("resourceNames", ())
    return ", ".join(rule["resources"]) + (f" {', '.join(f'`{name}`' for name in names)}" if names else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"|{''.join(f' {cell} |' if cell else ' |' for cell in cells)}" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])


TABLES = (("services", "helm/hbox/files/rbac", services), ("tenants", "helm/hbox/files/tenants.yaml", tenants))


def made(chart: Path, guide: str) -> str:
    """The guide with tables generated from the files. Raises ValueError if a marker is missing."""
    for name, files, table in TABLES:
        begin, end = BEGIN.format(name=name, files=files), END.format(name=name)
        before, found, rest = guide.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise ValueError(f"the guide has no {begin} ... {end}")
        guide = f"{before}{begin}\n\n{table(chart)}\n\n{end}{after}"
    return guide


def main() -> int:
    match sys.argv[1:]:
        case ["--write", chart, guide]:
            Path(guide).write_text(made(Path(chart), Path(guide).read_text()))
        case ["--check", chart, guide]:
            if made(Path(chart), Path(guide).read_text()) != Path(guide).read_text():
                print(f"{guide} differs from the chart's files; `make docs` updates it", file=sys.stderr)
                return 1
        case _:
            print("usage: python -m hbox_cli.platform.rights --check|--write CHART GUIDE", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Every `hbox` line of runbooks and guides is a command line that this version takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hbox_cli.__main__ import cli

DOCS = Path(__file__).parents[3] / "docs"
_INLINE = re.compile(r"`(hbox [a-z][^`]*)`")
_BLOCK = re.compile(r"^(?: {4,}|\$ )?(hbox [a-z].*)$")
#: What ends a command in a shell, or starts a comment on it.
_END = re.compile(r"\s(?:#|[|&;<>]|2>|\\$)|\s{3,}")


def lines() -> Iterator[tuple[str, str]]:
    """Page and command line."""
    for page in sorted((*DOCS.glob("runbooks/*.md"), *DOCS.glob("guides/*.md"))):
        fenced = False
        for line in page.read_text().splitlines():
            fenced ^= line.lstrip().startswith("```")
            found = [match[1] for match in _INLINE.finditer(line)]
            if block := _BLOCK.match(line):
                found += [block[1]] if fenced or line.startswith("    ") else []
            yield from ((page.name, _END.split(one)[0]) for one in found)


FOUND = sorted((page, line) for page, line in set(lines()) if " did not succeed" not in line)


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=name)
    for one in group.list_commands(context):
        found = group.get_command(context, one)
        assert found is not None
        yield f"{name} {one}", found
        if isinstance(found, click.Group):
            yield from commands(found, f"{name} {one}")


def test_each_option_of_a_command_has_a_name_of_its_own() -> None:
    for name, command in commands(cli, "hbox"):
        names = [option for one in command.params for option in (*one.opts, *one.secondary_opts)]
        assert len(names) == len(set(names)), name


def test_pages_have_lines() -> None:
    assert len({page for page, _ in FOUND if page.startswith("HBox")}) >= 15


def test_runbooks_with_lines_name_the_access_to_an_installed_chart() -> None:
    pages = {page for page, _ in FOUND if page.startswith("HBox")}
    assert [
        page for page in sorted(pages) if "(README.md#hbox-on-these-pages)" not in (DOCS / "runbooks" / page).read_text()
    ] == []
    assert "## `hbox` on these pages" in (DOCS / "runbooks/README.md").read_text()


@pytest.mark.parametrize(("page", "line"), FOUND)
def test_documented_line_is_one_that_hbox_takes(page: str, line: str) -> None:
    args = shlex.split(re.sub(r"\[[^\]]*\]|\.\.\.", "", line))[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="hbox")
    while isinstance(command, click.Group) and args:
        if args[0].startswith("-"):
            return  # a global option: its value is not known here
        inner = command.get_command(context, args[0])
        assert inner is not None, f"{page}: {line}: there is no {args[0]}"
        command, args = inner, args[1:]
    known = {option for one in command.get_params(context) for option in (*one.opts, *one.secondary_opts)}
    for word in args:
        option = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*", option):
            assert option in known, f"{page}: {line}: {' '.join((str(command.name), option))} is no option"

"""tests/citations.py finds citations that lead nowhere, at their line, and accepts those that resolve."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.citations import problems, prose

Write = Callable[[str, str], list[str]]

RIGHT = {
    "docs/reference/sources.md": "# Sources\n\n### hami-fit\n\nA fact (sources: hami-fit).\n",
    "docs/reference/invariants.md": "# Invariants\n\n## S1\n\nText.\n\n- Enforced by:\n  - `libs/common/src/hbox_common/model/claim.py::Claim`\n"
    "- Attacked by:\n  - `tests/test_claims.py::test_a_card`\n",
    "docs/reference/requirements.md": '| <a id="a5"></a>A5 | levels |\n',
    "docs/reference/threats.md": "| T1 | forged cards |\n",
    "docs/adr/0041-moves.md": "# 41. Moves\n\n## Why: costs\n",
    "libs/common/src/hbox_common/__init__.py": "",
    "libs/common/src/hbox_common/model/__init__.py": "from .claim import Claim\n",
    "libs/common/src/hbox_common/model/claim.py": "class Claim:\n    state: str\n\n    def post(self) -> None: ...\n",
    "tests/test_claims.py": "def test_a_card() -> None: ...\n",
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Add a file to a tree in which everything resolves; the problems that are found then."""

    def added(file: str, text: str) -> list[str]:
        for name, content in {**RIGHT, file: text}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        return [str(problem) for problem in problems(tmp_path, [*{**RIGHT, file: text}])]

    return added


@pytest.mark.parametrize(
    "text",
    [
        "The order is HAMi's (sources: hami-fit), S1 holds (requirements A5, threat T1, ADR 41; sources: hami-fit).",
        "See `model/claim.py`, libs/common/src/hbox_common/*/claim.py, `hbox_common.model.Claim`, `hbox_common.model.claim.Claim.post`.",
        "`Claim.state` and `post` in `model/claim.py`; `model/claim.py`, `Claim`; `claim.py::Claim.post`.",
        "[A decision](../adr/0041-moves.md#why-costs), [a folder](../adr), [here](#top), [elsewhere](https://example.com/a).\n\n# Top",
        "RFC 9112 §6.3 and RFC 5280 §4.1; `apiVersion: apps/v1`; libs/common/NAME.py; an Enflame-S60.",
    ],
)
def test_citation_that_resolves_is_accepted(write: Write, text: str) -> None:
    assert write("docs/guides/a.md", f"Title\n\n{text}\n") == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("(sources: hami-fit, hami-fits)", "no source 'hami-fits'"),
        ("(reference hami §1.4)", "outside the repository"),
        ("S21 holds", "'S21' is not defined"),
        ("requirements B4", "'requirements B4' is not defined"),
        ("threat T2", "'threat T2' is not defined"),
        ("ADR 42", "no decision 42"),
        ("libs/common/src/hbox_common/claims.py", "no file or folder libs/common/src/hbox_common/claims.py"),
        ("`model/claims.py`", "no module model/claims.py"),
        ("`hbox_common.model.claims`", "no module or name hbox_common.model.claims"),
        ("`hbox_common.model.claim.Claim.void`", "no module or name hbox_common.model.claim.Claim.void"),
        ("`concerns` in `model/claim.py`", "model/claim.py has no concerns"),
        ("`model/claim.py`, `concerns`", "model/claim.py has no concerns"),
        ("`model/claim.py::Plan`", "model/claim.py has no Plan"),
        ("[a](../adr/0042-moves.md)", "leads to docs/adr/0042-moves.md"),
        ("[a](../adr/0041-moves.md#costs)", "has no heading #costs"),
    ],
)
def test_citation_that_leads_nowhere_is_named_with_its_line(write: Write, text: str, what: str) -> None:
    [problem] = {line for line in write("docs/guides/a.md", f"Title\n\nWhy: {text}.\n") if "sources.md" not in line[:30]}
    assert problem.startswith("docs/guides/a.md:3: ")
    assert what in problem


def test_only_comments_and_docstrings_of_code_cite(write: Write) -> None:
    code = '"""A rule (sources: nowhere)."""\n\nX = "S99"  # S98\n\n\ndef f(sources: str, other: str) -> str:\n    """S97."""\n    return "ADR 99"\n'
    assert [line.partition(": ")[0] for line in write("libs/common/src/hbox_common/x.py", code)] == [
        "libs/common/src/hbox_common/x.py:1",
        "libs/common/src/hbox_common/x.py:3",
        "libs/common/src/hbox_common/x.py:7",
    ]


def test_citation_over_two_lines_of_a_comment_is_read_whole(write: Write) -> None:
    assert write("libs/common/src/hbox_common/x.py", "#: A rule (sources: hami-fit,\n#: hami-fit).\nX = 1\n") == []
    [problem] = write("libs/common/src/hbox_common/x.py", "#: A rule (sources: hami-fit,\n#: hami-fits).\nX = 1\n")
    assert "no source 'hami-fits'" in problem


def test_module_of_the_same_distribution_is_looked_for_there_alone(write: Write) -> None:
    assert (
        write(
            "libs/common/src/hbox_common/x.py", '"""As `model.claim`, `model.claim.Claim`, `model.Claim`, `state.model`."""\n'
        )
        == []
    )
    [problem] = write("libs/common/src/hbox_common/x.py", '"""As `model.claims`."""\n')
    assert problem.startswith("libs/common/src/hbox_common/x.py:1: no module or name model.claims in libs/common")
    assert write("services/a/src/hbox_a/x.py", '"""A field `model.claims` of something else."""\n') == []


def test_prose_keeps_its_place() -> None:
    source = 'X = 1  # one\n\n\ndef f() -> str:\n    """Two\n    three."""\n    return "four"\n'
    assert prose(source).split("\n") == [
        "         one",
        *["", "", " " * 15],
        '    """Two',
        '    three."""',
        " " * 17,
        "",
    ]


def test_source_that_nothing_cites_is_refused(write: Write) -> None:
    assert write(
        "docs/reference/sources.md", "### hami-fit\n\nA fact (sources: hami-fit).\n\n### hami-quota\n\nAnother.\n"
    ) == ["docs/reference/sources.md:5: nothing cites 'hami-quota': remove the section"]


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("- Attacked by:\n", "3: S1 names no test that attacks it"),
        ("- Attacked by:\n  - `tests/test_claim.py`\n", "no file tests/test_claim.py"),
        ("- Attacked by:\n  - `tests/test_claims.py::test_two_cards`\n", "10: S1: tests/test_claims.py has no test_two_cards"),
    ],
)
def test_invariant_needs_code_and_a_test_that_exist(write: Write, entry: str, what: str) -> None:
    head = RIGHT["docs/reference/invariants.md"].partition("- Attacked by:")[0]
    assert any(what in line for line in write("docs/reference/invariants.md", head + entry))

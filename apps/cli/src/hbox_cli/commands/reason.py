"""`hbox reason`: the catalogue of reasons for which jobs wait. It needs no cluster."""

import difflib
import os
from typing import Any

import click

from hbox_common.errors import NotFound
from hbox_common.reasons import CODES, Code, Language, code_of, code_of_label, language_of, owner_text
from hbox_common.reasons.phrases import OUTCOMES
from hbox_common.visible import padded

from ..context import Context, command_options
from ..output import Column, put

COLUMNS = (
    Column("CODE", lambda item: item["name"]),
    Column("STAGE", lambda item: item["stage"]),
    Column("OUTCOME", lambda item: item["outcome"]),
    Column("OWNER", lambda item: item["owner"]),
    Column("TITLE", lambda item: item["title"]),
    Column("WHAT TO DO", lambda item: item["fix"], wide=True),
)


@click.group("reason")
def command() -> None:
    """List the reasons for which jobs wait, and explain one: cause, who acts, and what to do."""


@command.command("ls")
@click.option("--stage", help="List only codes of this stage, such as quota or device.")
@command_options
def ls(ctx: Context, stage: str | None) -> None:
    """List all codes. HBOX_LANG=zh prints Chinese.

    \b
    hbox reason ls
    hbox reason ls --stage quota -o wide
    """
    stages = sorted({code.stage.value for code in CODES.values()})
    if stage is not None and stage not in stages:
        raise NotFound(f"there is no stage {stage}", hint=_hint(stage, stages, "stages are " + ", ".join(stages)))
    ctx.output.rows("Reason", [_item(code) for code in CODES.values() if stage in (None, code.stage.value)], COLUMNS)


@command.command("show")
@click.argument("code")
@command_options
def show(ctx: Context, code: str) -> None:
    """Explain CODE: its cause, who acts, and what to do. CODE may also be a label of nodes, such as "Insufficient cpu".

    \b
    hbox reason show CardsInUse
    HBOX_LANG=zh hbox reason show QueueClosed
    """
    found = code_of(code) or code_of_label(code)
    if found is None:
        raise NotFound(f"there is no reason {code}", hint=_hint(code, list(CODES), "`hbox reason ls` lists them"))
    if not ctx.output.people:
        ctx.output.document("Reason", _item(found))
        return
    language = language_of(os.environ)
    english = language is Language.EN
    put(f"{found.name}  {found.title.of(language)}")
    rows = (
        ("stage" if english else "阶段", found.stage.value),
        ("usually" if english else "通常", OUTCOMES[found.outcome].of(language)),
        ("who acts" if english else "处理者", owner_text(found.owner, language)),
        ("text" if english else "文本", found.text.of(language)),
        ("cause" if english else "原因", found.cause.of(language)),
        ("what to do" if english else "处理", found.fix.of(language)),
    )
    for head, text in rows:
        put(f"  {padded(head, 12)}{text}")


def _item(code: Code) -> dict[str, Any]:
    language = language_of(os.environ)
    return {
        "name": code.name,
        "stage": code.stage.value,
        "outcome": code.outcome.value,
        "owner": code.owner.value,
        "title": code.title.of(language),
        "text": code.text.of(language),
        "cause": code.cause.of(language),
        "fix": code.fix.of(language),
    }


def _hint(word: str, known: list[str], otherwise: str) -> str:
    lower = {name.lower(): name for name in known}
    near = [lower[name] for name in difflib.get_close_matches(word.lower(), list(lower), 3)]
    return f"did you mean {' or '.join(near)}?" if near else otherwise

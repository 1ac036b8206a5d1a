"""The catalogue of reasons is complete in both languages, and its pages are current."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from hbox_cli.__main__ import cli
from hbox_common.model import RefusalReason
from hbox_common.model.devices import DeviceLabel
from hbox_common.model.explanation import Outcome, Stage
from hbox_common.reasons import CODES, Code, Language, code_of, code_of_label, code_of_message
from hbox_common.reasons.facts import FACTS, filled, placeholders
from hbox_common.reasons.page import page, path_of
from hbox_scheduler.core.explain.labels import Label, insufficient

ROOT = Path(__file__).parents[4]
DOCS = ROOT / "docs/reference"
EACH = pytest.mark.parametrize("code", CODES.values(), ids=CODES)
CHINESE = re.compile("[\u4e00-\u9fff]")


@EACH
def test_code_has_all_texts_in_both_languages(code: Code) -> None:
    for text in (code.title, code.text, code.cause, code.fix):
        assert text.en.isascii()
        assert text.en.strip()
        assert CHINESE.search(text.zh), text.zh
    assert placeholders(code.title.en) | placeholders(code.title.zh) == set()
    assert code.cause.en.endswith(".")
    assert code.cause.zh.endswith("。")


@EACH
def test_both_languages_use_the_same_known_facts(code: Code) -> None:
    assert placeholders(code.text.en) == placeholders(code.text.zh)
    assert placeholders(code.text.en) <= set(FACTS)


@EACH
@pytest.mark.parametrize("language", Language)
def test_text_is_filled_by_its_facts(code: Code, language: Language) -> None:
    text = filled(code.text.of(language), {name: FACTS[name][1] for name in placeholders(code.text.en)}, language)
    assert text
    assert not set("{}[]") & set(text)


@pytest.mark.parametrize(
    "label", [*Label, *DeviceLabel, *RefusalReason, insufficient("cpu"), f"{Label.EXTENDER_REFUSED}: busy"]
)
def test_each_label_and_refusal_has_a_code(label: str) -> None:
    assert code_of_label(str(label)) is not None


def test_codes_follow_the_order_of_stages() -> None:
    stages = [code.stage for code in CODES.values()]
    assert stages == sorted(stages, key=list(Stage).index)


@EACH
def test_job_that_may_start_after_a_wait_is_not_rejected(code: Code) -> None:
    if code.fix.en.startswith("Wait") or " wait until " in code.fix.en:
        assert code.outcome is not Outcome.CHANGE


def test_each_fact_is_used() -> None:
    assert set(FACTS) == set().union(*(placeholders(code.text.en) for code in CODES.values()))


@EACH
@pytest.mark.parametrize("language", Language)
def test_commands_of_a_fix_exist(code: Code, language: Language) -> None:
    for line in re.findall("`hbox ([^`]*)`", code.fix.of(language) + code.cause.of(language)):
        command: click.Command = cli
        with click.Context(cli) as context:
            for word in line.split():
                if not isinstance(command, click.Group):
                    break
                found = command.get_command(context, word)
                assert found is not None, line
                command = found
        assert not isinstance(command, click.Group), f"`hbox {line}` only prints its help"


@pytest.mark.parametrize("language", Language)
def test_pages_are_current(language: Language) -> None:
    assert (DOCS / path_of(language)).read_text(encoding="utf-8") == page(language)


def test_code_is_found_in_any_case() -> None:
    assert code_of("cardsinuse") is CODES["CardsInUse"]
    assert code_of("Cards") is None


def test_code_is_the_first_word_of_a_message() -> None:
    assert code_of_message("QueueClosed: queue ml is not open") is CODES["QueueClosed"]
    assert code_of_message("QueueClosed") is None
    assert code_of_message("0/3 nodes are available: 3 CardsInUse") is None


def test_each_code_is_emitted_by_a_service_or_is_a_label() -> None:
    files = [path for path in ROOT.glob("*/*/src/**/*.py") if path.parent.name != "catalogue"]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert [code for code in CODES if f'"{code}' not in sources] == []

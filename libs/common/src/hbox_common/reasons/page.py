"""Reference pages of all reasons, generated from the catalogue: docs/reference/reasons.md, and reasons.zh.md in Chinese."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from . import phrases
from .code import Code, Language, Text
from .codes import CODES
from .facts import FACTS, placeholders

_TITLE = Text("# Reasons for which jobs wait", "# 作业等待的原因")
_INTRO = Text(
    """\
Generated from the code by `make docs`; do not edit. In Chinese: [reasons.zh.md](reasons.zh.md). In a terminal: `hbox reason ls`, `hbox reason show CODE`.

`hbox why JOB`, conditions of pods and PodGroups, Events, messages and metrics use these codes. The outcome states what ends the wait: *wait* (time), *change*
(of the job or its queue; no wait helps) or *escalate* (an operator). Outcome and owner are the usual ones; `hbox why` prints those of the job's state. Parts of
a text in square brackets appear if their facts are known.""",
    """\
由 `make docs` 从代码生成，请勿编辑。英文版：[reasons.md](reasons.md)。终端中：`hbox reason ls`、`hbox reason show CODE`。

`hbox why JOB`、Pod 与 PodGroup 的状况、事件、消息和指标都使用这些代码。结果说明等待如何结束：*等待*（时间）、*需修改*（作业或队列；等待无用）
或*需上报*（运维）。所列结果与处理者为通常情形；`hbox why` 显示作业当前状态下的结果。方括号中的部分在事实已知时出现。""",
)
_STAGE = Text("Stage {}", "阶段：{}")
_USUAL = Text("Usually *{}*; who acts: {}.", "通常*{}*；处理者：{}。")
_TITLED = Text("{}. {}", "{}。{}")
_HEADS = Text("Text|Cause|What to do|Placeholders", "文本|原因|处理|占位符")


def page(language: Language) -> str:
    """The page of all codes, by stage."""
    lines = [_TITLE.of(language), "", _INTRO.of(language), ""]
    for stage, codes in groupby(CODES.values(), key=lambda code: code.stage):
        lines += [f"## {_STAGE.of(language).format(phrases.STAGES[stage].of(language))}", ""]
        for code in codes:
            lines += [*_section(code, language), ""]
    return "\n".join(lines)


def path_of(language: Language) -> str:
    """Name of the page's file below docs/reference."""
    return "reasons.md" if language is Language.EN else f"reasons.{language}.md"


def _section(code: Code, language: Language) -> Iterator[str]:
    text, cause, fix, facts = _HEADS.of(language).split("|")
    yield f"### {code.name}"
    yield ""
    yield _TITLED.of(language).format(code.title.of(language), _usual(code, language))
    yield ""
    yield f"- {text}: {code.text.of(language)}"
    yield f"- {cause}: {code.cause.of(language)}"
    yield f"- {fix}: {code.fix.of(language)}"
    if named := sorted(placeholders(code.text.en)):
        yield f"- {facts}: " + "; ".join(
            f"`{name}` ({FACTS[name][0]})" if language is Language.EN else f"`{name}`" for name in named
        )


def _usual(code: Code, language: Language) -> str:
    return _USUAL.of(language).format(phrases.OUTCOMES[code.outcome].of(language), phrases.OWNERS[code.owner].of(language))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m hbox_common.reasons.page", description=__doc__)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true", help="write the pages")
    todo.add_argument("--check", action="store_true", help="exit with 1 if a page is out of date")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="docs/reference")
    given = parser.parse_args(arguments)
    for language in Language:
        path = given.folder / path_of(language)
        if given.write:
            path.write_text(page(language), encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != page(language):
            print(f"{path} is out of date; run `make docs`", file=sys.stderr)  # noqa: T201  this is a command
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

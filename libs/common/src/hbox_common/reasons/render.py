"""Explanations as text: the same words in `hbox why`, conditions, Events, the API and the console."""

import re
from collections.abc import Iterator, Mapping, Sequence

from hbox_common.model.explanation import Change, Explanation, Fact, NodeCounts, Outcome, Owner, StageResult
from hbox_common.visible import padded, width

from . import phrases
from .code import Language, Text
from .codes import CODES, code_of_label, code_of_message
from .facts import MAX_DETAIL, clean, filled, names, number, time_text

#: Nodes are named if fewer than this are in the way.
FEW_NODES = 20
MAX_CHANGES = 8
#: Waiting is attributed to codes from so many seconds on.
MIN_ATTRIBUTED_S = 60.0
_INDENT = 10
#: A name that ends with a number, without letters of other scripts.
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})", re.DOTALL)
#: Parts of a verdict's message that count nodes and pods.
_COUNTS = re.compile(
    r"\d+/\d+ nodes are available|in the way alone: |\d+ of \d+ pods fit|for the next one |no node has room for it even when empty"
)


def language_of(environ: Mapping[str, str]) -> Language:
    """The language of a terminal: of HBOX_LANG, else of the locale."""
    for variable in ("HBOX_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environ.get(variable, ""):
            return Language.ZH if value.lower().startswith("zh") else Language.EN
    return Language.EN


def headline(explanation: Explanation, language: Language = Language.EN) -> str:
    """One line: outcome, and the code's text with the explanation's facts."""
    outcome = phrases.OUTCOMES[explanation.outcome].of(language)
    return f"{outcome}{_colon(language)}{blocked(explanation, language)}"


def blocked(explanation: Explanation, language: Language = Language.EN) -> str:
    """What is in the way: the code's text with the explanation's facts, its title if facts are missing, the bare code of a newer scheduler."""
    return _stage_text(explanation.code, explanation.facts, language)


def verdict_line(outcome: str, code: str, message: str, language: Language = Language.EN) -> str:
    """One line for conditions and Events of a verdict without facts: outcome, code and its title, then the component's message. A verdict of an older
    scheduler has no code: the message's first word may be one, else the line is the message."""
    known = CODES.get(code) or (code_of_message(message) if not code else None)
    if known is None:
        prefix = f"{outcome}: " if outcome else ""
        return f"{prefix}{code}: {message}" if code else f"{prefix}{message}"
    shown = phrases.OUTCOMES[Outcome(outcome) if outcome in set(Outcome) else known.outcome].of(language)
    rest = message.removeprefix(f"{known.name}: ")
    return f"{shown}{_colon(language)}{known.name}: {_lowered(known.title.of(language))}" + (f": {rest}" if rest else "")


def lines(explanation: Explanation, language: Language = Language.EN, *, message: str = "") -> Iterator[str]:
    """The whole explanation, without the job's own line. `message`: of the job's verdict; what it adds, such as reservations, is shown as notes."""
    yield _row(phrases.VERDICT, " · ".join(_verdict(explanation, language)), language)
    text = blocked(explanation, language)
    yield _row(phrases.BLOCKED, text, language)
    if amounts := _amounts(explanation, language):
        yield _row(None, amounts, language)
    revision = phrases.REVISION.of(language).format(explanation.revision) if explanation.revision else ""
    yield _row(None, phrases.AS_OF.of(language).format(time_text(explanation.at)) + revision, language)
    if explanation.stages:
        shown = [_stage(one, language) for one in explanation.stages]
        yield _row(phrases.STAGES_HEAD, " · ".join(shown), language)
    yield from _nodes(explanation.nodes, language)
    # The remedy that such a message has is below.
    remedied = explanation.outcome is Outcome.CHANGE and code_of_message(message) is not None
    for place, note in enumerate(() if remedied else notes(message, text)):
        yield _row(None if place else phrases.NOTES, note, language)
    if explanation.start is not None:
        start = explanation.start
        text = phrases.INTERVAL.of(language).format(
            time_text(explanation.at + start.p50_s), time_text(explanation.at + start.p90_s), clean(start.method)
        )
        driver = f" · {phrases.DRIVER.of(language).format(clean(start.driver))}" if start.driver else ""
        yield _row(phrases.START, text + driver, language)
    if sum(explanation.attribution.values()) >= MIN_ATTRIBUTED_S:
        yield _row(phrases.WAITED, waited(explanation.attribution), language)
    if explanation.changes:
        yield phrases.SMALLEST_CHANGE.of(language)
        yield from _changes(explanation.changes[:MAX_CHANGES], language)
    elif (code := code_of_label(explanation.code)) is not None:
        yield _row(phrases.FIX, code.fix.of(language), language)


def trace_line(trace: str, language: Language = Language.EN) -> str:
    """The id of the job's trace."""
    return _row(phrases.TRACE, trace, language)


def notes(message: str, text: str) -> list[str]:
    """Parts of a verdict's message beyond its counts of nodes and pods, which the explanation has, and beyond `text`."""
    if (code := code_of_message(message)) is not None:
        message = message.removeprefix(f"{code.name}: ")
    parts = [clean(part, MAX_DETAIL) for part in message.split("; ")]
    return [part for part in parts if part and not _COUNTS.match(part) and part not in text]


def change_text(change: Change, language: Language = Language.EN) -> str:
    """What one proposed change alters, with the changes that have to be made together with it."""
    # A preferred domain has no tier.
    facts = {name: value for name, value in change.facts.items() if name != "tier" or change.facts.get("mode") != "soft"}
    texts = (filled(text.of(language), facts, language) for text in phrases.CHANGES[change.kind])
    own = next((text for text in texts if text), change.kind.value)
    return phrases.AND.of(language).join((own, *(change_text(one, language) for one in change.also)))


def owner_text(owner: Owner, language: Language = Language.EN) -> str:
    """Who acts next."""
    return phrases.OWNERS[owner].of(language)


def duration(seconds: float) -> str:
    """Two largest units, such as 1h12m; one, if the second would be 0."""
    left = max(0, round(seconds))
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, size)
        if amount or parts:
            parts.append((amount, unit))
    return "".join(f"{amount}{unit}" for amount, unit in parts[:2] if amount) or "0s"


def waited(seconds: Mapping[str, float]) -> str:
    """`1h12m = 8m QueueShareSpent + 52m CardsInUse + 12m Evicted`: the whole wait, and its parts by code in the order in which they began. Parts below a second
    are left out where there are longer ones."""
    parts = {code: spent for code, spent in seconds.items() if spent >= 1.0} or dict(list(seconds.items())[-1:])
    return f"{duration(sum(seconds.values()))} = " + " + ".join(
        f"{duration(spent)} {clean(code)}" for code, spent in parts.items()
    )


def _verdict(explanation: Explanation, language: Language) -> Iterator[str]:
    yield phrases.OUTCOMES[explanation.outcome].of(language)
    yield explanation.code
    yield phrases.ACTS.of(language).format(owner_text(explanation.owner, language))
    if explanation.position:
        yield phrases.POSITION.of(language).format(explanation.position, max(explanation.queued, explanation.position))
    if explanation.since:
        yield phrases.WAITING_FOR.of(language).format(duration(explanation.at - explanation.since))


def _amounts(explanation: Explanation, language: Language) -> str:
    if not explanation.need:
        return ""
    need, have = _amount(explanation.need, language), _amount(explanation.have, language)
    return phrases.NEED_HAVE.of(language).format(need, have) if have else phrases.NEED.of(language).format(need)


def _amount(amounts: Mapping[str, float], language: Language) -> str:
    return ", ".join(f"{number(value)} {_unit(unit, value, language)}" for unit, value in amounts.items())


def _unit(unit: str, amount: float, language: Language) -> str:
    known = (phrases.ONE if amount == 1 else {}).get(unit) or phrases.UNITS.get(unit)
    return known.of(language) if known is not None else clean(unit)


def _stage(result: StageResult, language: Language) -> str:
    name = phrases.STAGES[result.stage].of(language)
    if not result.code:
        return f"{name} {phrases.OK.of(language)}"
    return f"{name}{_colon(language)}{clean(result.code)}"


def _stage_text(name: str, facts: Mapping[str, Fact], language: Language) -> str:
    code = code_of_label(name)
    if code is None:  # of a newer scheduler
        return clean(name)
    # A detail that counts nodes is a whole message: the explanation has the counts, and `notes` the rest.
    known = {fact: value for fact, value in facts.items() if fact != "detail" or not _COUNTS.match(str(value))}
    return filled(code.text.of(language), known, language) or _lowered(code.title.of(language))


def _nodes(nodes: NodeCounts, language: Language) -> Iterator[str]:
    if not nodes.total:
        return
    total = phrases.NODE_SUM if nodes.total > 1 else phrases.ONE_NODE_SUM
    parts = [total.of(language).format(nodes.total, nodes.fitting), *_counted(nodes.first, nodes, language)]
    yield _row(phrases.NODES_HEAD, " + ".join(parts), language)
    if nodes.only and len(nodes.first) > 1:
        alone = " · ".join(f"{clean(label)} {count}" for label, count in _by_count(nodes.only))
        yield _row(None, phrases.ONLY.of(language).format(alone), language)


def _counted(counts: Mapping[str, int], nodes: NodeCounts, language: Language) -> Iterator[str]:
    for label, count in _by_count(counts):
        listed = nodes.names.get(label, ())
        named = (
            f" ({names(_ranges(listed), language, more=max(0, count - len(listed)))})" if listed and count < FEW_NODES else ""
        )
        yield f"{count} {clean(label)}{named}"


def _ranges(listed: Sequence[str]) -> list[str]:
    """The names, with runs of at least three that count up, such as node-0001 to node-0016, as one."""
    runs: list[list[str]] = []
    for name in listed:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return [text for run in runs for text in ([f"{run[0]} … {run[-1]}"] if len(run) > 2 else run)]


def _follows(name: str, other: str) -> bool:
    one, two = _NUMBERED.fullmatch(name), _NUMBERED.fullmatch(other)
    if one is None or two is None or one[1] != two[1] or len(one[2]) != len(two[2]):
        return False
    return int(two[2]) == int(one[2]) + 1


def _by_count(counts: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _changes(changes: Sequence[Change], language: Language) -> Iterator[str]:
    rows = [(change_text(one, language), owner_text(one.owner, language), _command(one, language)) for one in changes]
    columns = [max(width(row[column]) for row in rows) for column in (0, 1)]
    for place, (text, owner, command) in enumerate(rows, 1):
        yield f"{place:>2} {padded(text, columns[0])}  {padded(owner, columns[1])}  {command}".rstrip()


def _command(change: Change, language: Language) -> str:
    commands = [clean(one.command, MAX_DETAIL) for one in (change, *change.also) if one.command]
    return phrases.AND.of(language).join(commands)


def _row(head: Text | None, text: str, language: Language) -> str:
    return padded(head.of(language) if head is not None else "", _INDENT) + text


def _colon(language: Language) -> str:
    return "：" if language is Language.ZH else ": "


def _lowered(title: str) -> str:
    """A title inside a sentence: its first word keeps a second capital, as in CPU."""
    return title if len(title) < 2 or title[1].isupper() else title[0].lower() + title[1:]

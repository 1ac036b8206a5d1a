"""Explanations of pending jobs: scheduler-core computes them on request, and `hbox why` prints them."""

import os
from collections.abc import Mapping
from typing import Any

from hbox_common.bus import Bus
from hbox_common.errors import NotFound, Unavailable
from hbox_common.model.explanation import Outcome
from hbox_common.reasons import code_of_label, language_of, lines, verdict_line
from hbox_common.visible import padded

from .output import notify, put

Item = dict[str, Any]

#: Timeout in seconds of a request for an explanation, and attempts: an answer may be lost, or late under load.
EXPLAIN_S = 5.0
ATTEMPTS = 2


async def explanation(bus: Bus, job: Item) -> Item | None:
    """The explanation of a waiting job, with its waiting by code; None if its scheduler has none, or does not answer."""
    from hbox_common.views.explanations import explanation_item  # noqa: PLC0415  for those who ask why

    try:
        answer = await _ask(bus, job)
    except Unavailable as e:
        notify(f"no explanation from scheduler-core: {e}")
        return None
    if answer.explanation is None:
        return None
    return explanation_item(answer.explanation, job)


async def rules_of_node(bus: Bus, job: Item, node: str) -> list[str]:
    """Labels of all rules that the node fails for a pod of the job, in the order in which reasons are given. Raises NotFound, Unavailable."""
    answer = await _ask(bus, job, node)
    if answer.node is None:
        raise NotFound(
            f"{job['name']} does not wait, or there is no node {node}", hint="`hbox nodes` lists nodes, `hbox jobs` jobs"
        )
    return list(answer.node.failed)


def rule_item(label: str) -> Item:
    """A rule that a node fails, by its label."""
    code = code_of_label(label)
    language = language_of(os.environ)
    return {
        "label": label,
        "code": "" if code is None else code.name,
        "title": "" if code is None else code.title.of(language),
        "fix": "" if code is None else code.fix.of(language),
    }


def show_explanation(job: Mapping[str, Any]) -> None:
    """Print the explanation of a job's item. Its verdict adds notes unless it is of another code: the job's item may then be older than the explanation."""
    from hbox_common.views.explanations import explanation_of  # noqa: PLC0415  for those who ask why

    found = explanation_of(job["explanation"])
    code = job.get("code", "")
    same = code in ("", found.code) or (code_of_label(code) or code) == code_of_label(found.code)
    for line in lines(found, language_of(os.environ), message=job["reason"] if same else ""):
        put(f"  {line}")


def show_rules(node: str, rules: list[Item]) -> None:
    """Print the rules that a node fails."""
    if not rules:
        put(f"  {node} has room for a pod of it")
        return
    put(f"  {node} fails {len(rules)} rule{'s' if len(rules) > 1 else ''}:")
    columns = max(len(rule["label"]) for rule in rules)
    for rule in rules:
        put(f"    {padded(rule['label'], columns)}  {rule['title']}".rstrip())


def waiting_text(job: Item) -> str:
    """One line about a waiting job without an explanation, in the words of its verdict."""
    reason: str = job["reason"]
    if reason.partition(": ")[0] in set(Outcome):  # a condition's message
        return reason
    line = verdict_line(job.get("verdict", ""), job.get("code", ""), reason, language_of(os.environ))
    return line if line != reason else f"waits: {line}"


async def _ask(bus: Bus, job: Item, node: str = "") -> Any:
    from hbox_common.events.explain import ExplainAnswer, ExplainRequest, endpoint_of  # noqa: PLC0415
    from hbox_common.model import NodeName  # noqa: PLC0415

    request = ExplainRequest(job=job["id"], changes=not node, node=NodeName(node))
    lost: Unavailable | None = None
    for _ in range(ATTEMPTS):
        try:
            return await bus.call(
                "scheduler-core", endpoint_of("explain", job.get("shard", "")), request, ExplainAnswer, timeout_s=EXPLAIN_S
            )
        except Unavailable as e:
            lost = e
            if not e.outcome_unknown:
                break
    assert lost is not None
    raise lost

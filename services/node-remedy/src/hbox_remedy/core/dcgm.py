"""Answers of DCGM's `dcgmi`, of versions 3 and 4. Whatever it prints is untrusted text: what cannot be read is no result, and never one that is good."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hbox_common.model.bounds import sanitized

#: Failed tests that are kept, and bytes of each. Results that are read: a node with 16 cards has fewer than a thousand.
MOST_FAILURES, FAILURE_BYTES, MOST_RESULTS = 16, 200, 4096
_PASSED, _FAILED, _WARNED = ("pass", "passed", "ok"), ("fail", "failed", "failure", "error"), ("warn", "warning")
_SKIPPED = ("skip", "skipped", "not run", "notrun", "n/a")
_ROW = re.compile(r"^\|\s*(\d*)\s*\|\s*(.*?)\s*\|\s*$")
_UUID = re.compile(r"Device UUID:\s*(\S+)")


def card_ids(table: str) -> dict[str, int]:
    """DCGM's numbers of cards by UUID, of `dcgmi discovery -l`."""
    found: dict[str, int] = {}
    number = ""
    for line in table.splitlines():
        if (row := _ROW.match(line)) is None:
            continue
        number = row[1] or number
        if number and (uuid := _UUID.search(row[2])):
            found[uuid[1]] = int(number)
    return found


@dataclass(frozen=True, slots=True)
class Diagnosis:
    passed: int = 0  #: results of tests that passed, those with a warning included
    failures: tuple[str, ...] = ()  #: name of each failed test, its card, and its first text
    error: str = ""  #: why there is no result


def diagnosis(output: str) -> Diagnosis:
    """Of `dcgmi diag -j`, whose document may follow other lines."""
    begin = output.find("{")
    try:
        document = json.JSONDecoder().raw_decode(output, begin)[0] if begin >= 0 else None
    except (ValueError, RecursionError):
        document = None
    roots = [root for root in (document or {}).values() if isinstance(root, dict)] if isinstance(document, dict) else []
    failures: dict[str, None] = {}
    passed, unknown = 0, ""
    for read, (name, result) in enumerate(_results(roots)):
        if read >= MOST_RESULTS:
            return Diagnosis(error=f"more than {MOST_RESULTS} results")
        status = _status(result)
        if status in _FAILED:
            failures[sanitized(f"{name}{_card(result)}{_text(result)}", FAILURE_BYTES)] = None
        elif status not in (*_PASSED, *_WARNED, *_SKIPPED):
            unknown = unknown or sanitized(f"{name} has the unknown result {status!r}", FAILURE_BYTES)
        passed += status in (*_PASSED, *_WARNED)
    if failures:
        return Diagnosis(passed, tuple(failures)[:MOST_FAILURES])
    if unknown:
        return Diagnosis(error=unknown)
    errors = [str(root[key]) for root in roots for key in ("runtime_error", "Error", "error") if root.get(key)]
    if errors or not roots:
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no output")
        return Diagnosis(error=sanitized(errors[0] if errors else last, FAILURE_BYTES))
    return Diagnosis(passed)


def _results(roots: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Results with the names of their tests. A summary is one if a test has no other, or if it alone has the status of a failure. Results that are no list are
    one without a status."""
    for root in roots:
        for category in _dicts(root.get("test_categories")):
            for test in _dicts(category.get("tests")):
                name = str(test.get("name", "unnamed test"))
                written = test.get("results") or []
                found: list[dict[str, Any]] = _dicts(written) if isinstance(written, list) else [{}]
                yield from ((name, result) for result in found)
                summary = test.get("test_summary")
                failed = isinstance(summary, dict) and _status(summary) in _FAILED
                if isinstance(summary, dict) and (not found or (failed and all(_status(one) not in _FAILED for one in found))):
                    yield name, summary


def _status(result: dict[str, Any]) -> str:
    """Without the text that may follow it, as in `Fail: memory`."""
    return str(result.get("status", "")).partition(":")[0].strip().lower()


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _card(result: dict[str, Any]) -> str:
    """Version 3 names cards in `gpu_ids`, version 4 entities in `entity_group` and `entity_id`."""
    if isinstance(ids := result.get("gpu_ids"), str | int) and not isinstance(ids, bool):
        return f" (GPU {ids})"
    group, number = result.get("entity_group"), result.get("entity_id")
    return f" ({group} {number})" if isinstance(group, str) and isinstance(number, int) else ""


def _text(result: dict[str, Any]) -> str:
    warnings = result.get("warnings")
    first = warnings[0] if isinstance(warnings, list) and warnings else warnings
    text = first.get("warning") if isinstance(first, dict) else first
    return f": {text}" if isinstance(text, str) and text else ""

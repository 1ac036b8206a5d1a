"""Injected faults: a seeded list of rules selects the requests that fail, and how.

    {"seed": 7, "rules": [{"verb": "create", "resource": "pods/binding", "probability": 0.1, "applied_status": 504},
                          {"verb": "watch", "resource": "pods", "watch_end_s": 2.0}]}

A rule matches requests by verb (get, list, watch, create, update, patch, delete, deletecollection; "*" = all), resource (plural, with
"/subresource" if any; "*" = all), name (of the object; empty = any) and client (prefix of its User-Agent, so that observers can be excluded). It
fires with `probability`, on each `every`-th match, at most `limit` times, with all of its effects. If several rules fire, each adds the effects that
earlier ones left unset.
"""

from __future__ import annotations

from random import Random

import msgspec

from .errors import ApiError, bad_request

_TEXTS = {
    403: ("Forbidden", "injected is forbidden"),
    409: ("Conflict", "Operation cannot be fulfilled: injected conflict"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: injected"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


class Rule(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One fault. `message`: text of the error, instead of the default. `applied_status`: the write is applied, and the response is this error nevertheless;
    `watch_gone`: "http" or "stream". `watch_silent`: while the plan is in force, new and open watches stay open and send nothing, not even their end;
    `stale`: an API server serves the request whose watch cache is frozen at the revision of the plan's installation: consistent reads are current, watches
    send nothing; `by_name`: the report has the number of matches for each object, which needs no other effect."""

    verb: str = "*"
    resource: str = "*"
    name: str = ""
    client: str = ""
    probability: float = 1.0
    every: int = 1
    limit: int = 0
    status: int = 0
    message: str = ""
    retry_after_s: int | None = None
    latency_s: float = 0.0
    reset: bool = False
    applied_status: int = 0
    applied_reset: bool = False
    watch_end_s: float = 0.0
    watch_gone: str = ""
    watch_stall_s: float = 0.0
    watch_chunk: int = 0
    watch_silent: bool = False
    stale: bool = False
    by_name: bool = False

    def takes(self, verb: str, resource: str, client: str, name: str = "") -> bool:
        there = self.verb in ("*", verb) and self.resource in ("*", resource) and self.name in ("", name)
        return there and client.startswith(self.client)


class Plan(msgspec.Struct, forbid_unknown_fields=True):
    """What `PUT /_sandbox/faults` takes."""

    seed: int = 0
    rules: list[Rule] = []


class Faults:
    """The plan in force and its counters."""

    def __init__(self) -> None:
        self.install(Plan())

    def install(self, plan: Plan, *, revision: int = 0) -> None:
        """`revision`: the current revision of the store."""
        self.plan = plan
        self._random = Random(plan.seed)
        self._matched = [0] * len(plan.rules)
        self.fired = [0] * len(plan.rules)
        self.stale_at = revision
        self.names: dict[str, int] = {}  #: matches of rules with `by_name`, by resource/name

    def load(self, text: bytes, *, revision: int = 0) -> None:
        """Install a plan given as JSON; 400 where it is none."""
        try:
            plan = msgspec.json.decode(text, type=Plan)
        except msgspec.MsgspecError as error:
            raise bad_request(f"the fault plan is not valid: {error}") from error
        for rule in plan.rules:
            if rule.every < 1 or not 0 <= rule.probability <= 1 or rule.watch_gone not in ("", "http", "stream"):
                raise bad_request(f"the fault plan is not valid: {rule}")
        self.install(plan, revision=revision)

    def silent(self, resource: str, client: str) -> bool:
        """Whether the plan keeps this client's open watches of a resource silent."""
        return any(rule.watch_silent and rule.takes("watch", resource, client) for rule in self.plan.rules)

    def report(self) -> bytes:
        return msgspec.json.encode({"seed": self.plan.seed, "rules": self.plan.rules, "fired": self.fired, "names": self.names})

    def draw(self, verb: str, resource: str, client: str = "", name: str = "") -> Rule | None:
        """What happens to this request: the rules that fire, as one; None for nothing."""
        drawn: Rule | None = None
        for at, rule in enumerate(self.plan.rules):
            if not rule.takes(verb, resource, client, name):
                continue
            self._matched[at] += 1
            if rule.by_name:
                self.names[f"{resource}/{name}"] = self.names.get(f"{resource}/{name}", 0) + 1
            if self._matched[at] % rule.every or (rule.limit and self.fired[at] >= rule.limit):
                continue
            if rule.probability < 1 and self._random.random() >= rule.probability:
                continue
            self.fired[at] += 1
            drawn = rule if drawn is None else _joined(drawn, rule)
        return drawn


def _joined(first: Rule, second: Rule) -> Rule:
    return Rule(**{name: getattr(first, name) or getattr(second, name) for name in Rule.__struct_fields__})


def refusal(code: int, fault: Rule) -> ApiError:
    reason, text = _TEXTS.get(code, ("InternalError", f"injected status {code}"))
    return ApiError(code, reason, fault.message or text, retry_after_s=fault.retry_after_s)

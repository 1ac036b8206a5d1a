"""Stories: reports of several nodes over days, replayed in virtual time through the incident engine of health-monitor.

The player replaces everything around the engine: agents that report (and report again after a restart), the binder that cordons, the scheduler that starts
evicted gangs elsewhere, and node-remedy, whose outcomes are events of the story.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hbox_common.health.lines import read_raw, read_text
from hbox_common.health.report import NODE, Check, Fact
from hbox_common.model import Incident, IncidentState, NodeName
from hbox_common.model.healthorder import Exemption
from hbox_common.model.remedy import REPAIRS, Outcome, Verb
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.facts import Assessor, box_of
from hbox_health.core.judge.finding import Action, Blame, Finding, Scope, Severity
from hbox_health.core.judge.happenings import (
    AgentSeen,
    Cordon,
    Effect,
    Event,
    EvictGang,
    Exempted,
    FactSeen,
    Found,
    HoldersStopped,
    IncidentChanged,
    JobEnded,
    JobsSeen,
    Maintenance,
    NodeSeen,
    OperatorCloses,
    PodOnCards,
    Policy,
    Remedied,
    Remedy,
    Scopes,
    TellOwner,
    Tick,
    Uncordon,
    Validated,
    VerdictChanged,
)
from hbox_health.core.judge.incidents import Incidents
from hbox_health.core.judge.rules import Rules

_ORIGIN = 1_700_000_000.0  #: where a story's second 0 is; only differences count
_STATES = [state.value for state in IncidentState]


@dataclass(slots=True)
class _Job:
    name: str
    queue: str = ""
    policy: Policy = Policy.RESTART
    deadline_s: float = 900.0
    nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: node -> its cards there
    spare: list[str] = field(default_factory=list)
    wants: dict[str, int] = field(default_factory=dict)  #: while it waits for a new start: nodes -> numbers of cards
    left: set[str] = field(default_factory=set)  #: nodes from which it was evicted
    pids: tuple[int, ...] = ()


@dataclass(slots=True)
class _Node:
    name: str
    boot: str = "boot-0"
    agent: bool = True
    lines: list[tuple[str, str]] = field(default_factory=list)  #: (entity, line) of this boot
    seq: int = 0  #: of the last fact of this boot
    notified: int = 0  #: so many of them were reported
    states: dict[str, Fact] = field(default_factory=dict)
    pods: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: pods without a job of their own
    cards: dict[str, None] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    all_known: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    unit: str = ""
    unschedulable: bool = False
    ours: bool = False
    verdict: Scopes = field(default_factory=Scopes)
    held_by_plugin: set[str] = field(default_factory=set)
    slow: int = 0
    accepted: bool = True
    modules: int = 0


class Story:
    """`play` runs the events of a case and answers the questions of its `expect`."""

    def __init__(self, given: Mapping[str, Any], context: Mapping[str, Any], expect: Mapping[str, Any], rules: Rules) -> None:
        self.events: list[dict[str, Any]] = sorted(given["events"], key=lambda event: float(event["t"]))
        self.expect = expect
        checks = any(str(event["event"]).startswith("validation") for event in self.events)
        self.engine = Incidents(Policies(verbs=REPAIRS, validator=checks), Assessor(rules))
        self.rules = rules
        self.nodes: dict[str, _Node] = {}
        self.jobs: dict[str, _Job] = {}
        self.log: list[tuple[float, str, str]] = []  #: (when, word, object): what was decided, in order
        self.incidents: dict[str, Incident] = {}
        self.counted: dict[str, Incident] = {}  #: those that were confirmed and are no part of another
        self.notified: dict[str, list[TellOwner]] = {}
        self.notices: dict[str, float] = {}
        self.refused = 0
        self.lost_cards: dict[str, tuple[str, ...]] = {}  #: of incidents of nodes, also when they are closed
        self.cordoned: set[str] = set()
        self.isolated: set[tuple[str, str]] = set()
        self.now = 0.0
        self.box = str(context.get("box", ""))
        later = {e.get("node"): e["event"] for e in reversed(self.events) if e["event"] in {"agent-starts", "agent-restarts"}}
        self._unstarted = {name for name, kind in later.items() if kind == "agent-starts"}
        names = [str(e["node"]) for e in self.events if e.get("node") not in (None, "*")]
        for event in self.events:
            names += [str(n) for n in (event.get("nodes") or ()) if isinstance(event.get("nodes"), list)]
            names += [str(n) for n in event.get("spare") or ()]
        count = int(context.get("cluster_nodes", 0) or 0)
        for name in dict.fromkeys(names):
            self._node(name)
        for index in range(count - len(self.nodes)):
            self._node(f"other-{index}")
        for event in self.events:
            if event.get("card") and event.get("node") in self.nodes:
                self.nodes[str(event["node"])].cards[_card(event["card"])] = None

    # --- running

    def play(self) -> dict[str, Any]:
        for node in self.nodes.values():
            self._show(node)
        asked = list(self.expect.get("at", ()))
        answers: list[dict[str, Any] | None] = [None] * len(asked)
        steps: list[tuple[float, int, int]] = [(float(event["t"]), 0, i) for i, event in enumerate(self.events)]
        steps += [(float(question["t"]), 1, i) for i, question in enumerate(asked)]
        for at, question, index in sorted(steps):
            self._until(at)
            if question:
                answers[index] = self._answer(asked[index])
            else:
                self._event(self.events[index])
        self._until(max([self.now, *(float(e.get("until_t", 0)) for e in self.events)]))
        return self._result([answer for answer in answers if answer is not None])

    def _until(self, at: float) -> None:
        while (due := self.engine.due) is not None and due - _ORIGIN <= at:
            self.now = max(self.now, due - _ORIGIN)
            self._step(Tick())
        self.now = max(self.now, at) if self.now or at > 0 else at

    def _step(self, event: Event) -> None:
        pending = [event]
        while pending:
            for effect in self.engine.step(pending.pop(0), _ORIGIN + self.now):
                pending += self._effect(effect)
            if not pending:
                waiting = [job for job in self.jobs.values() if job.wants]
                pending += [self._seen_jobs(self._node(name)) for job in waiting for name in sorted(self._place(job))]

    def _node(self, name: str) -> _Node:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = _Node(name, agent=name not in self._unstarted)
            if self.box:
                node.labels = {"hbox.io/profile": self.box}
        return node

    def _show(self, node: _Node) -> None:
        self._step(self._seen_node(node))

    def _seen_node(self, node: _Node) -> NodeSeen:
        cards, refused = tuple(node.cards) or (f"gpu:{node.name}",), tuple(sorted(node.held_by_plugin))
        return NodeSeen(
            NodeName(node.name),
            cards,
            node.parents,
            refused,
            unit=node.unit,
            labels=node.labels,
            unschedulable=node.unschedulable,
            ours=node.ours,
        )

    def _pods(self, node: _Node) -> None:
        self._step(self._seen_jobs(node))

    def _seen_jobs(self, node: _Node) -> JobsSeen:
        pods = [
            PodOnCards(name, name, name, cards, Policy.IGNORE if cards[0].startswith("mig:") else Policy.RESTART)
            for name, cards in node.pods.items()
        ]
        pods += [
            PodOnCards(
                f"{job.name}@{node.name}",
                job.name,
                job.queue or job.name,
                job.nodes[node.name],
                job.policy,
                job.deadline_s,
                len(job.nodes) > 1,
                pids=job.pids,
            )
            for job in self.jobs.values()
            if node.name in job.nodes
        ]
        return JobsSeen(NodeName(node.name), tuple(pods), None if node.all_known else tuple(sorted(node.known)))

    # --- events of the story

    def _event(self, event: Mapping[str, Any]) -> None:
        handler: Callable[[_Node, Mapping[str, Any]], None] | None = getattr(
            self, "_on_" + str(event["event"]).replace("-", "_"), None
        )
        if handler is None:
            raise ValueError(f"event {event['event']}: no such event")
        name = str(event.get("node", "*"))
        if name == "*" and event["event"] not in {
            "gang",
            "pod-of",
            "job-cancelled",
            "pod-ends",
            "exemption",
            "tick",
            "operator-closes",
        }:
            for node in list(self.nodes.values()):
                handler(node, event)
        else:
            handler(self._node(name) if name != "*" else next(iter(self.nodes.values()), self._node("n1")), event)

    def _fact(self, node: _Node, check: Check, entity: str, code: str, value: dict[str, Any]) -> None:
        node.seq += 1
        fact = Fact(node.seq, self.now, check, entity, code, value)
        if check is not Check.KERNEL_LOG:
            node.states[f"{check}|{entity}|{code}"] = fact
        if node.agent:
            self._step(FactSeen(NodeName(node.name), node.boot, fact))

    def _read_log(self, node: _Node, start: int) -> None:
        for index in range(start, len(node.lines)):
            entity, line = node.lines[index]
            for record in _records(line):
                of = entity or NODE
                record.setdefault("seq", index)
                self._fact(node, Check.KERNEL_LOG, of, str(record.get("code", record.get("kind", ""))), record)
        node.notified = len(node.lines)

    def _on_kmsg(self, node: _Node, event: Mapping[str, Any]) -> None:
        boot = event.get("boot_id")
        if boot and str(boot) != node.boot:  # a line of another boot, replayed
            for record in _records(str(event["line"])):
                fact = Fact(
                    1, self.now, Check.KERNEL_LOG, _card(event.get("card", "")) or NODE, str(record.get("code", "")), record
                )
                self._step(FactSeen(NodeName(node.name), str(boot), fact))
            return
        entity = _card(event["card"]) if event.get("card") else ""
        for line in event.get("lines") or [event["line"]]:
            node.lines += [(entity, str(line))] * int(event.get("count", event.get("times", 1)))
        if node.agent:
            self._read_log(node, node.notified)

    def _on_boot(self, node: _Node, event: Mapping[str, Any]) -> None:
        boot = str(event.get("boot_id", f"{node.boot}+"))
        if boot == node.boot:
            return
        first = node.boot == "boot-0" and not node.lines and not node.states
        node.boot, node.lines, node.notified, node.seq = boot, [], 0, 0
        node.states = {} if not first else node.states
        node.pods = {}
        for job in self.jobs.values():
            job.nodes.pop(node.name, None)
        node.all_known = True
        self._pods(node)
        if node.agent:
            self._step(Found(NodeName(node.name), node.boot, ()))

    _on_reboot = _on_boot

    def _on_agent_starts(self, node: _Node, event: Mapping[str, Any]) -> None:
        node.agent = True
        boot = str(event.get("boot_id") or node.boot)
        node.boot, node.seq = boot, node.seq if boot == node.boot else 0
        self._step(Found(NodeName(node.name), node.boot, ()))
        self._read_log(node, 0)
        for fact in list(node.states.values()):
            self._fact(node, Check(fact.check), fact.entity, fact.code, fact.value)

    _on_agent_restarts = _on_agent_starts

    def _on_agent_silent(self, node: _Node, _: Mapping[str, Any]) -> None:
        self._step(AgentSeen(NodeName(node.name), node.boot))
        node.agent = False

    def _on_publishes(self, node: _Node, event: Mapping[str, Any]) -> None:
        if str(event.get("subject_node", node.name)) != node.name:
            self.refused += 1
        elif event.get("line"):
            self._on_kmsg(node, event)

    def _on_clock(self, _node: _Node, _event: Mapping[str, Any]) -> None:
        """Times of agents decide nothing, so a jump of a node's clock has no consequence to play."""

    def _on_tick(self, _node: _Node, _event: Mapping[str, Any]) -> None:
        self._step(Tick())

    def _on_port(self, node: _Node, event: Mapping[str, Any]) -> None:
        value = {key: str(event[key]) for key in ("state", "leaf", "rate", "phys_state") if key in event}
        self._fact(node, Check.PORTS, f"rail:{event['hca']}", "port", value)

    def _on_nvml_count(self, node: _Node, event: Mapping[str, Any]) -> None:
        count = int(_first(event, "count", "found", "nvml_count", "value"))
        expected = _first(event, "want", "expected", "inventory", "sys_count")
        value: dict[str, Any] = {"count": count, "expected": int(expected) if isinstance(expected, int) else 8}
        if event.get("lost"):
            value |= {"listed": (), "inventory": tuple(str(u) for u in _list(event["lost"]))}
        self._fact(node, Check.NVML, NODE, "cards", value)

    def _on_nvml_hangs(self, node: _Node, event: Mapping[str, Any]) -> None:
        self._fact(node, Check.AGENT, NODE, "hangs", {"reader": "nvml", "since": 0 if event.get("ends") else self.now + 1})

    def _on_nvml_event(self, node: _Node, event: Mapping[str, Any]) -> None:
        instance = event.get("gpu_instance")
        entity = f"mig:{instance}" if instance else _card(event["card"])
        record = {"kind": "xid", "code": int(event["xid"]), "pci": f"nvml:{event['card']}", "seq": f"nvml-{self.now}-{entity}"}
        self._fact(node, Check.KERNEL_LOG, entity, str(event["xid"]), record)

    def _on_register(self, node: _Node, event: Mapping[str, Any]) -> None:
        card, well = _card(event["card"]), bool(event.get("health", True))
        if well:
            node.held_by_plugin.discard(card)
        else:
            node.held_by_plugin.add(card)
        self._show(node)

    def _on_unit(self, node: _Node, event: Mapping[str, Any]) -> None:
        value = {str(event["unit"]): str(event["state"])}
        if "uptime_s" in event:
            value["uptime_s"] = event["uptime_s"]
        self._fact(node, Check.UNITS, NODE, str(event["unit"]), value)

    def _on_module(self, node: _Node, event: Mapping[str, Any]) -> None:
        self._fact(
            node, Check.UNITS, NODE, str(event["module"]), {str(event["module"]): "loaded" if event["loaded"] else "missing"}
        )

    def _on_mig(self, node: _Node, event: Mapping[str, Any]) -> None:
        card = _card(event["card"])
        node.parents |= {f"mig:{instance}": card for instance in event.get("instances", ())}
        node.cards[card] = None
        for instance, pod in (event.get("pods") or {}).items():
            node.pods[str(pod)] = (f"mig:{instance}", card)
        node.known.add(card)
        self._show(node)
        self._pods(node)

    def _on_pods(self, node: _Node, event: Mapping[str, Any]) -> None:
        on = event.get("on", True)
        cards = [_card(event["card"])] if event.get("card") else list(node.cards)
        if isinstance(on, dict):
            node.pods |= dict(_pod_on(one, other) for one, other in on.items())
        elif isinstance(on, list):
            node.pods |= {f"pod-{index}": (_card(card),) for index, card in enumerate(on)}
        elif on is False or on == 0:
            node.pods = {}
        elif isinstance(on, str) and on.startswith("GPU-"):
            node.pods["pod-0"] = (_card(on),)
        else:
            node.pods |= {f"pod-{index}": (card,) for index, card in enumerate(cards or [f"gpu:{node.name}"])}
        node.known |= {card for held in node.pods.values() for card in held} | set(cards)
        node.all_known = True
        self._pods(node)

    def _on_pod_of(self, node: _Node, event: Mapping[str, Any]) -> None:
        job = self._job(event)
        for name, cards in self._cards_named(event, node).items():
            job.nodes[name] = tuple(dict.fromkeys([*job.nodes.get(name, ()), *cards]))
        if event.get("pid") is not None:
            job.pids = (*job.pids, int(event["pid"]))
        for name in list(job.nodes):
            self._pods(self._node(name))

    def _cards_named(self, event: Mapping[str, Any], node: _Node) -> dict[str, tuple[str, ...]]:
        """Cards of an event: `card`, a list, a map by node, or words such as "all of n1 to n8"."""
        cards = event.get("cards", event.get("card"))
        if isinstance(cards, dict):
            return {str(name): tuple(_card(card) for card in _list(of)) for name, of in cards.items()}
        if isinstance(cards, str) and (found := re.search(r"all of (\D+)(\d+) to \D*(\d+)", cards)):
            names = [f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1)]
            return {name: tuple(self._node(name).cards) for name in names}
        names = [str(name) for name in event.get("nodes", ())] or ([] if event.get("node") in (None, "*") else [node.name])
        if cards is None or cards == "all" or (isinstance(cards, str) and cards.startswith("all")):
            return {name: tuple(self._node(name).cards) for name in names or self.nodes}
        listed = tuple(_card(card) for card in _list(cards))
        return dict.fromkeys(names or [n.name for n in self.nodes.values() if not set(listed).isdisjoint(n.cards)], listed)

    def _job(self, event: Mapping[str, Any]) -> _Job:
        job = self.jobs.setdefault(str(event["job"]), _Job(str(event["job"])))
        job.queue = str(event.get("queue", job.queue))
        return job

    def _on_gang(self, node: _Node, event: Mapping[str, Any]) -> None:
        job = self._job(event)
        job.policy = Policy(event.get("policy", job.policy))
        job.deadline_s = float(event.get("deadline_s", job.deadline_s))
        job.spare = [str(name) for name in event.get("spare", ())]
        names = [str(name) for name in event.get("nodes", ())] or [node.name]
        each = event.get("cards_each")
        for name in names:
            of = self._node(name)
            cards = tuple(_card(card) for card in _list(event.get("cards") or ()))
            if not cards:
                while len(of.cards) < int(each or len(of.cards) or 1):
                    of.cards[f"gpu:{name}-{len(of.cards)}"] = None
                cards = tuple(of.cards)
                of.all_known = True
            job.nodes[name] = cards
            of.cards |= dict.fromkeys(cards)
            of.known |= set(cards)
        for name in [*names, *job.spare]:
            self._show(self._node(name))
            self._pods(self._node(name))

    def _on_job_cancelled(self, _node: _Node, event: Mapping[str, Any]) -> None:
        job = self.jobs.pop(str(event["job"]), None)
        for name in job.nodes if job else ():
            self._pods(self.nodes[name])
        self._step(JobEnded(str(event["job"])))

    def _on_pod_ends(self, node: _Node, event: Mapping[str, Any]) -> None:
        if event.get("pod"):
            for of in self.nodes.values():
                if of.pods.pop(str(event["pod"]), None) is not None:
                    self._pods(of)
        if event.get("job"):
            job = self.jobs.get(str(event["job"]))
            if job is not None:
                names = [node.name] if event.get("node") not in (None, "*") and len(job.nodes) > 1 else list(job.nodes)
                for name in names:
                    job.nodes.pop(name, None)
                    self._pods(self._node(name))

    def _on_idle(self, node: _Node, event: Mapping[str, Any]) -> None:
        cards = {_card(card) for card in _list(event.get("card") or event.get("cards") or list(node.cards))}
        node.pods = {pod: held for pod, held in node.pods.items() if cards.isdisjoint(held)}
        for job in self.jobs.values():
            if not cards.isdisjoint(job.nodes.get(node.name, ())):
                del job.nodes[node.name]
        node.known |= cards
        node.all_known = node.all_known or not event.get("card")
        self._pods(node)

    def _on_reset_begun(self, node: _Node, event: Mapping[str, Any]) -> None:
        outcome = Outcome(str(event["event"]).removeprefix("reset-"))
        holders = tuple(str(holder) for holder in event.get("holders", ()))
        self._step(Remedied(NodeName(node.name), _card(event["card"]), Verb.RESET, outcome, holders))

    _on_reset_done = _on_reset_failed = _on_reset_refused = _on_reset_begun

    def _on_holders_stopped(self, node: _Node, event: Mapping[str, Any]) -> None:
        cards = [_card(event["card"])] if event.get("card") else list(node.cards)
        for card in cards:
            self._step(HoldersStopped(NodeName(node.name), card, str(event["event"]) == "holders-stopped"))

    _on_holders_started = _on_holders_stopped

    def _on_validation_passed(self, node: _Node, event: Mapping[str, Any]) -> None:
        entity = _card(event["card"]) if event.get("card") else NODE
        self._step(Validated(NodeName(node.name), entity, str(event["event"]) == "validation-passed"))

    _on_validation_failed = _on_validation_passed

    def _on_joins(self, node: _Node, event: Mapping[str, Any]) -> None:
        node.labels |= {str(key): str(value) for key, value in (event.get("labels") or {}).items()}
        self._show(node)
        profile = self.rules.profile(box_of(node.labels))
        counts = [int(event[key]) for key in ("nvml_count", "sys_count") if event.get(key) is not None]
        expected = profile.cards or (max(counts) if counts else 0)
        short = (expected, min(counts)) if counts and min(counts) < expected else None
        findings = []
        if short:
            why = f"it joined with {short[1]} cards of {short[0]}"
            findings = [
                Finding(
                    NODE,
                    "joins",
                    "short",
                    Severity.FATAL_NODE,
                    Blame.HARDWARE,
                    Scope.NODE,
                    Action.CORDON,
                    "hbox-requirements",
                    why,
                )
            ]
        self._step(Found(NodeName(node.name), node.boot, tuple(findings), "joins"))

    def _on_slow_node(self, node: _Node, _event: Mapping[str, Any]) -> None:
        node.slow += 1
        action, severity = (Action.RETEST, Severity.SUSPECT) if node.slow < 2 else (Action.CORDON, Severity.DEGRADED)
        why = "it is slower than the others" + ("" if node.slow < 2 else " in two runs")
        slow = Finding(NODE, "slow", "node", severity, Blame.HARDWARE, Scope.NODE, action, "hbox-requirements", why)
        self._step(Found(NodeName(node.name), node.boot, (slow,), "slow"))

    def _on_pair_test(self, node: _Node, event: Mapping[str, Any]) -> None:
        node.unit = str(event.get("unit", node.unit))
        rail = event.get("rail")
        findings = []
        if float(event["busbw"]) < 0.9 * float(event["others"]):
            why = f"{event['busbw']} GB/s on rail {rail}, others {event['others']}"
            findings = [
                Finding(
                    NODE,
                    "pair-test",
                    f"rail-{rail}",
                    Severity.SUSPECT,
                    Blame.HARDWARE,
                    Scope.NODE,
                    Action.RETEST,
                    "hbox-requirements",
                    why,
                )
            ]
        self._step(
            Found(NodeName(node.name), node.boot, tuple(findings), f"pair-test|{rail}", group=f"switch:{node.unit}-rail-{rail}")
        )

    def _on_exemption(self, node: _Node, event: Mapping[str, Any]) -> None:
        until = event.get("until")
        ends = _ORIGIN + float(until) if isinstance(until, int | float) else _ORIGIN + 1e9
        named = "" if event.get("node") in (None, "*") else node.name
        exemption = Exemption(
            str(event.get("who", "")),
            str(event.get("why", "")),
            ends,
            named,
            str(event.get("label", "")),
            str(event.get("check", "")),
            str(event.get("code", "")),
        )
        self._step(Exempted(exemption))

    def _on_maintenance(self, node: _Node, event: Mapping[str, Any]) -> None:
        until = event.get("until", self.now + float(event.get("for_s", 7200)))
        self._step(Maintenance(NodeName(node.name), _ORIGIN + float(until)))

    def _on_operator_closes(self, node: _Node, event: Mapping[str, Any]) -> None:
        entity = _card(event["card"]) if event.get("card") else f"rail:{event['rail']}" if event.get("rail") else ""
        self._step(OperatorCloses(NodeName(node.name), entity))

    def _on_cordoned_by_us(self, node: _Node, event: Mapping[str, Any]) -> None:
        cordoned, by = str(event["event"]).split("-by-")
        node.unschedulable = cordoned == "cordoned"
        node.ours = node.unschedulable and by == "us"
        if by == "us" and not node.unschedulable:
            self.engine.work.memory.nodes[node.name].asked = "uncordon"  # what arrives late was decided by us
        self._show(node)

    _on_cordoned_by_hand = _on_uncordoned_by_us = _on_uncordoned_by_hand = _on_cordoned_by_us

    # --- what the engine decides

    def _effect(self, effect: Effect) -> list[Event]:
        match effect:
            case Cordon(name, _):
                self._note("cordon", name)
                self.cordoned.add(name)
                return self._cordon(name, closed=True)
            case Uncordon(name, _):
                self._note("uncordon", name)
                return self._cordon(name, closed=False)
            case EvictGang():
                return self._evict(effect)
            case TellOwner():
                self.notified.setdefault(effect.job, []).append(effect)
                self.notified.setdefault(effect.pod, []).append(effect)
                self._note("tell-owner", effect.job, effect.pod)
            case Remedy(name, _, _, entity, verb):
                self._note(str(verb), name, _bare(entity))
            case VerdictChanged(name, _, scopes):
                self._verdict(self.nodes[name], scopes)
            case IncidentChanged(incident):
                self._incident(incident)
            case _:
                pass
        return []

    def _note(self, word: str, *objects: str) -> None:
        self.log += [(self.now, word, of) for of in objects or ("",)]

    def _cordon(self, name: str, *, closed: bool) -> list[Event]:
        node = self.nodes[name]
        node.unschedulable = node.ours = closed
        return [self._seen_node(node)]

    def _evict(self, effect: EvictGang) -> list[Event]:
        if effect.deadline > _ORIGIN + self.now:
            self.notices[effect.job] = effect.deadline - _ORIGIN
            self._note("notice", effect.job)
            return []
        one_card = len(effect.cards) <= 1
        self._note("evict", effect.job, effect.node)
        if one_card:
            self._note("evict-one-card-pods", effect.job)
        self.nodes[effect.node].pods.pop(effect.job, None)
        job, changed = self.jobs.get(effect.job), {str(effect.node)}
        if job is not None:
            changed |= set(job.nodes)
            job.left.add(effect.node)
            if effect.policy is Policy.SHRINK:
                job.nodes.pop(effect.node, None)
            else:
                job.wants = job.wants or {name: len(cards) for name, cards in job.nodes.items()}
                job.nodes = {}
                changed |= self._place(job)
        return [self._seen_jobs(self._node(name)) for name in sorted(changed)]

    def _place(self, job: _Job) -> set[str]:
        """Start an evicted gang again, whole or not at all, where the verdicts admit it."""
        sizes = list(job.wants.values())
        free = {name: self._free(self._node(name), max(sizes)) for name in dict.fromkeys([*job.wants, *job.spare])}
        fit = [name for name, cards in free.items() if len(cards) >= max(sizes)][: len(sizes)]
        if len(fit) < len(sizes):
            return set()
        job.nodes = {name: free[name] for name in fit}
        job.wants = {}
        for name in fit:
            if name in job.left and self.nodes[name].verdict != Scopes():
                self._note("again", name)
        return set(fit)

    def _free(self, node: _Node, count: int) -> tuple[str, ...]:
        while len(node.cards) < count:
            node.cards[f"gpu:{node.name}-{len(node.cards)}"] = None
        verdict = node.verdict
        if node.unschedulable or not verdict.node or (count > 1 and not verdict.multi_gpu):
            return ()
        used = {card for job in self.jobs.values() for card in job.nodes.get(node.name, ())}
        return tuple(card for card in node.cards if card not in used and card not in verdict.cards)[:count]

    def _verdict(self, node: _Node, scopes: Scopes) -> None:
        before, node.verdict = node.verdict, scopes
        for card in set(scopes.cards) - set(before.cards):
            self.isolated.add((node.name, card))
            self._note("isolate-gpu", node.name, _bare(card))
        for rail in set(scopes.rails_off) - set(before.rails_off):
            self._note("isolate-rail", node.name, _bare(rail))
        if before.multi_gpu and not scopes.multi_gpu:
            self._note("multi-gpu-off", node.name)
        if scopes == Scopes() and any(self._open_on(node.name)):
            held = [
                i
                for i in self._open_on(node.name)
                if i.action in _ISOLATING and i.state != IncidentState.SUSPECT and not i.held_by
            ]
            if held:
                self._note("uncordon-all", node.name)

    def _incident(self, incident: Incident) -> None:
        before = self.incidents.get(incident.id)
        self.incidents[incident.id] = incident
        for held in (
            self.engine.work.memory.nodes[incident.node].open.values() if incident.node in self.engine.work.memory.nodes else ()
        ):
            if held.id == incident.id:
                self.lost_cards[incident.id] = tuple(held.cards)
        if incident.state is IncidentState.CLOSED:
            if incident.why.startswith("part of"):
                self.counted.pop(incident.id, None)
            elif incident.id in self.counted:
                self.counted[incident.id] = incident
            self._note("close", incident.node, incident.entity)
            return
        if incident.state is IncidentState.SUSPECT:
            return
        if incident.id not in self.counted:
            self._note("incident", incident.node, _bare(incident.entity))
        self.counted[incident.id] = incident
        if before is None or (before.action, before.blame, before.state) != (incident.action, incident.blame, incident.state):
            objects = [o for o in dict.fromkeys([incident.node, _bare(incident.entity)]) if o]
            if incident.action not in _EXECUTED:
                self._note(incident.action, *objects)
            if incident.action == Action.REBOOT and incident.state is not IncidentState.VALIDATING:
                self._note("reboot", *objects)
            if incident.action in {Action.TICKET, Action.REPLACE}:
                self._note(f"ticket-{incident.blame}", *objects)
            self._note(f"blame-{incident.blame}", *objects)
            if incident.kind.startswith(("slow", "pair-test")):
                self._note("slow", incident.node)

    # --- what the case asks

    def _open_on(self, name: str) -> list[Incident]:
        return [i for i in self.incidents.values() if i.node == name and i.state is not IncidentState.CLOSED]

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        subjects = {key: str(question[key]) for key in ("node", "card", "rail", "job", "pod", "incident") if key in question}
        out: dict[str, Any] = {"t": question["t"], **subjects}
        for key, expected in question.items():
            if key not in ("t", "accept", *subjects):
                out[key] = self._value(subjects, key, expected)
        return out

    def _about(self, subjects: Mapping[str, str]) -> list[Incident]:
        """The incidents that a question is about, the decisive one first."""
        every = list(self.incidents.values())
        name = subjects.get("node")
        if "incident" in subjects:
            chosen = [i for i in every if subjects["incident"] in (i.id, i.entity, i.kind)]
        elif "card" in subjects:
            card = _card(subjects["card"])
            chosen = [i for i in every if self._concerns(i, card) and name in (None, i.node)]
        elif "rail" in subjects:
            chosen = [i for i in every if i.entity == f"rail:{subjects['rail']}" and name in (None, i.node)]
        elif "job" in subjects:
            chosen = [
                i
                for i in every
                if i.entity == f"job:{subjects['job']}"
                or any(t.incident == i.id for t in self.notified.get(subjects["job"], ()))
            ]
        elif "pod" in subjects:
            chosen = [i for i in every if any(t.incident == i.id for t in self.notified.get(subjects["pod"], ()))]
        elif name is not None:
            chosen = [i for i in every if i.node == name]
        else:
            chosen = every
        chosen = [i for i in chosen if i.state is not IncidentState.CLOSED or not i.why.startswith("part of")]
        return sorted(chosen, key=_importance, reverse=True)

    def _concerns(self, incident: Incident, card: str) -> bool:
        node = self.nodes.get(incident.node)
        if incident.entity == card or (node is not None and node.parents.get(incident.entity) == card):
            return True
        return card in self.lost_cards.get(incident.id, ())

    def _value(self, subjects: Mapping[str, str], key: str, expected: Any) -> Any:
        about = self._about(subjects)
        worst = about[0] if about else None
        node = self.nodes.get(subjects.get("node", "")) or self._node_of(subjects)
        verdict = node.verdict if node else Scopes()
        card = _card(subjects["card"]) if "card" in subjects else ""
        job = subjects.get("job", subjects.get("pod", ""))
        notified = self.notified.get(job, [])
        taken = node is not None and (node.unschedulable or not verdict.node)
        match key:
            case "state" | "ours":
                return worst.state.value if worst else "well"
            case "action":
                return self._action(subjects, worst, notified)
            case "count":
                if "incident" in subjects:
                    return len({i.id for i in about if i.id in self.counted})
                action = self._action(subjects, worst, notified)
                return len({at for at, word, _ in self.log if word == action}) or len(about)
            case "incidents":
                return len({i.id for i in about if i.id in self.counted})
            case "cordoned":
                return node is not None and node.unschedulable
            case "schedulable":
                return not taken
            case "multi_gpu":
                return not taken and verdict.multi_gpu
            case "multi_node":
                return not taken and verdict.multi_node and not verdict.rails_off
            case "one_gpu":
                return not taken and not (node is not None and node.cards and set(node.cards) <= set(verdict.cards))
            case "new_work":
                return (
                    not taken
                    and not (card and self._off(node, card))
                    and not ("rail" in subjects and f"rail:{subjects['rail']}" in verdict.rails_off)
                )
            case "usable":
                if "rail" in subjects:
                    return f"rail:{subjects['rail']}" not in verdict.rails_off
                return not taken and not self._off(node, card) and not (node and card in node.held_by_plugin)
            case "isolated" | "off":
                return self._off(node, card) if card else f"rail:{subjects.get('rail')}" in verdict.rails_off
            case "new_work_on":
                return {
                    part: not any(self._off(n, f"{kind}:{part}") for n in self.nodes.values() for kind in ("mig", "gpu"))
                    for part in expected
                }
            case "held_by":
                return self._held_by(node, card, about, expected)
            case "noticed":
                return job in self.notices
            case "deadline":
                return _number(self.notices.get(job))
            case "told":
                return self._notified(notified, expected)
            case "nodes":
                return list(self.jobs[job].nodes) if job in self.jobs else []
            case "running":
                return bool(job in self.jobs and self.jobs[job].nodes)
            case "evicted":
                return any(word == "evict" and of == job for _, word, of in self.log)
            case "waiting" | "queued":
                return (
                    subjects["node"] in self.engine.work.memory.breaker.queue
                    if "node" in subjects
                    else len(self.engine.work.memory.breaker.queue)
                )
            case "boot_id":
                return node.boot if node else None
            case "refused":
                return self.refused
            case _:
                return getattr(worst, key, None)

    def _node_of(self, subjects: Mapping[str, str]) -> _Node | None:
        if "card" in subjects:
            card = _card(subjects["card"])
            return next((n for n in self.nodes.values() if card in n.cards or card in n.parents), None)
        if "rail" in subjects:
            rail = f"rail:{subjects['rail']}"
            return next((n for n in self.nodes.values() if any(fact.entity == rail for fact in n.states.values())), None)
        return None

    def _action(self, subjects: Mapping[str, str], worst: Incident | None, notified: list[TellOwner]) -> str:
        if ("job" in subjects or "pod" in subjects) and notified:
            return Action.NOTIFY_OWNER.value
        return "none" if worst is None or worst.state is IncidentState.CLOSED else str(worst.action)

    def _off(self, node: _Node | None, card: str) -> bool:
        if node is None:
            return False
        parent = node.parents.get(card)
        parts = [part for part, of in node.parents.items() if of == card]
        return (
            card in node.verdict.cards
            or parent in node.verdict.cards
            or (bool(parts) and all(p in node.verdict.cards for p in parts))
        )

    def _held_by(self, node: _Node | None, card: str, about: list[Incident], expected: Any) -> Any:
        held = [by for incident in about if incident.state is not IncidentState.CLOSED for by in incident.held_by]
        if node is not None and card in node.held_by_plugin:
            held.insert(0, "device-plugin")
        if node is not None and node.unschedulable and not node.ours:
            held.append("hand")
        held = list(dict.fromkeys(held))
        return held if isinstance(expected, list) else held[0] if held else None

    def _notified(self, notified: list[TellOwner], expected: Any) -> Any:
        if not isinstance(expected, Mapping):
            return bool(notified)
        last = notified[-1] if notified else None
        if last is None:
            return {}
        known = {"node": last.node, "card": _bare(last.card), "code": last.code, "text": last.text}
        return {key: known.get(key) for key in expected}

    def _result(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        worst = max(self.counted.values(), key=_importance, default=None)
        return {
            "at": answers,
            "incidents": len(self.counted),
            "nodes_cordoned": len(self.cordoned),
            "cards_isolated": len(self.isolated),
            "refused": self.refused,
            "restarts_at_most_per_hour": self._most("restart-fm", 3600.0),
            "loads_at_most_per_day": self._most("load-module", 86400.0),
            "never": [word for word in self.expect.get("never", ()) if self._happened(str(word))],
            "authority": worst.authority if worst else "",
            "why": worst.why if worst else "nothing to decide",
            "log": [{"t": _number(at), "what": word, **({"of": of} if of else {})} for at, word, of in self.log],
        }

    def _most(self, word: str, window: float) -> int:
        times = sorted({at for at, done, _ in self.log if done == word})
        return max((sum(at <= other < at + window for other in times) for at in times), default=0)

    def _happened(self, text: str) -> bool:
        """Whether a word of `never` came true."""
        word, _, of = text.partition(":")
        before = after = None
        if word.endswith(("-before", "-after")):
            word, _, kind = word.rpartition("-")
            before, after = (float(of), None) if kind == "before" else (None, float(of))
            of = ""
        times = [at for at, done, about in self.log if self._is(word, done, about) and of in ("", about)]
        return any((before is None or at < before) and (after is None or at > after) for at in times)

    def _is(self, word: str, done: str, about: str) -> bool:
        return word in (done, f"{about}-{done}") or (word == "drain" and done in {"evict", "notice"})


_EXECUTED = {
    Action.RESET,
    Action.REBOOT,
    Action.RESTART_FM,
    Action.LOAD_MODULE,
    Action.ACS_OFF,
    Action.RESTART_DEVICE_PLUGIN,
    Action.CORDON,
    Action.ISOLATE_GPU,
}
_ISOLATING = _EXECUTED | {Action.ISOLATE_RAIL, Action.DRAIN_AND_RESET, Action.MULTI_GPU_OFF, Action.DRAIN_P2P}


def _importance(incident: Incident) -> tuple[bool, bool, int, float]:
    return (
        incident.state is not IncidentState.CLOSED,
        incident.state is not IncidentState.SUSPECT,
        list(Severity).index(Severity(incident.severity)) if incident.severity else -1,
        incident.opened,
    )


def _records(text: str) -> list[dict[str, Any]]:
    return read_raw(text) if re.match(r"\d+,\d+,\d+,", text) else read_text(text)


def _pod_on(one: Any, other: Any) -> tuple[str, tuple[str, ...]]:
    """A pod and its card, in either order."""
    pod, card = (other, one) if str(one).startswith(("GPU-", "MIG-")) else (one, other)
    return str(pod), tuple(_card(each) for each in _list(card))


def _card(value: Any) -> str:
    text = str(value)
    if not text or text.startswith(("gpu:", "mig:")):
        return text
    return f"mig:{text}" if text.startswith("MIG-") else f"gpu:{text}"


def _bare(entity: str) -> str:
    return entity.partition(":")[2] if entity.startswith(("gpu:", "mig:", "rail:", "job:")) else entity


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _first(event: Mapping[str, Any], *keys: str) -> Any:
    return next((event[key] for key in keys if key in event), None)


def _number(value: float | None) -> float | int | None:
    return int(value) if value is not None and float(value).is_integer() else value

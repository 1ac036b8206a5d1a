"""Facts of reports become findings. The kernel's records about a card are judged together as long as they follow each other (`burst.judge`)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hbox_common.health.dcgm import scrape_of
from hbox_common.health.records import BURST_S, card_of
from hbox_common.health.report import NODE, Check, Fact

from .assess import RECOVERY, Context, recovery_finding
from .burst import judge
from .exporter import RELOAD_S, judge_rows, judge_values
from .finding import Action, Blame, Finding, Scope, Severity
from .happenings import FactSeen, Found
from .inventory import lost_cards
from .memory import MOST_BURST, Burst, Expected, NodeMemory
from .portstate import judge_port
from .rules import Rules
from .snapshot import judge_card, judge_init

CONTAINED = 94
#: XID 154 follows a linked code within this time.
RECOVERY_ACTION_S = 2.0
FABRIC_MANAGER, PEERMEM = "nvidia-fabricmanager", "nvidia_peermem"
REQUIREMENTS = "hbox-requirements"
#: After a boot the fabric manager and the ports come up within this time.
BOOT_GRACE_S = 600.0
#: A label that states the box of a node. The model of its cards does not: machines with one to eight of them are sold.
PROFILE = "hbox.io/profile"
#: NVML does not start while the driver is loaded: two readings of an agent have to find it.
INIT_S = 60.0
#: Characters of a reader's name, which the agent states.
MOST_NAME = 32


@dataclass(slots=True)
class Assessor:
    """`rules` may be replaced by newer ones at any time."""

    rules: Rules

    def __call__(self, event: FactSeen, node: NodeMemory, now: float) -> Found | None:
        if node.accepted is None:
            profile = self.rules.profile(node.labels.get(PROFILE, ""))
            node.expected = Expected(profile.name, profile.cards, profile.nvlinks, profile.ports)
        return found(event, node, self.rules, now)


def found(event: FactSeen, node: NodeMemory, rules: Rules, now: float) -> Found | None:
    """What the fact amounts to; None: a fact of a kind that decides nothing."""
    fact = event.fact
    match fact.check, fact.code:
        case Check.KERNEL_LOG, _:
            return _kernel(event, node, rules, now)
        case Check.NVML_EVENTS, "154":  # NVML's field 230, which is read at once, states the action
            return None
        case ((Check.DCGM | Check.NVML_EVENTS), code) if code.isdigit():  # an XID without its line
            return _kernel(event, node, rules, now)
        case Check.PORTS, _:
            leaf = fact.value.get("leaf") or node.unit
            return _state(event, *judge_port(fact), group=f"switch:{leaf}" if leaf else "")
        case Check.NVML, "card":
            return _card(event, node, rules)
        case Check.NVML, "cards":
            node.driver = _major(fact.value.get("driver")) or node.driver
            if fact.value.get("init"):
                return _state(event, *_init(fact, node), *_standing(fact, node), wait_s=INIT_S)
            if "problem" in fact.value:  # NVML starts; an incomplete answer takes no lost card back
                return _state(event, *_standing(fact, node))
            return _state(event, *lost_cards(fact, node))
        case Check.UNITS, "acs":
            return _state(event, *_acs(fact))
        case Check.DCGM, "card":
            context = Context(rules.profile(box_of(node.labels)), node.driver)
            return _state(event, *judge_values(scrape_of(fact.entity.removeprefix("gpu:"), fact.value), rules, context))
        case Check.DCGM, "exporter":
            rows = _exporter(fact)
            return None if rows is None else _state(event, *rows)
        case Check.UNITS, _:
            return _state(event, *_units(fact, nvswitch=rules.profile(box_of(node.labels)).nvswitch), wait_s=_boot_wait(fact))
        case Check.AGENT, code if code.partition(":")[0] == "hangs":
            return _state(event, *([_hang(fact)] if fact.value.get("since") else []))
    return None


def _state(event: FactSeen, *findings: Finding | None, group: str = "", wait_s: float | None = None) -> Found:
    shown = tuple(finding for finding in findings if finding is not None)
    return Found(event.node, event.boot_id, shown, _source(event.fact), group=group, wait_s=wait_s)


def _source(fact: Fact) -> str:
    return f"{fact.check}|{fact.entity}|{fact.code}"


def _card(event: FactSeen, node: NodeMemory, rules: Rules) -> Found:
    """A card whose recovery action was not None and is None again was reset: that cures what the kernel reported about it, too."""
    fact, source = event.fact, _source(event.fact)
    profile = rules.profile(box_of(node.labels))
    if profile.nvlinks is None:
        profile = replace(profile, nvlinks=node.parts.links.get(fact.entity.removeprefix("gpu:")))
    findings = judge_card(fact.value, fact.entity, profile)
    asked = (
        reason.finding.authority == RECOVERY and reason.source == source and reason.ended is None
        for incident in node.open.values()
        for reason in incident.reasons.values()
    )
    if fact.value.get("recovery_action") == 0 and any(asked):
        findings.insert(0, recovery_finding(fact.entity, 0, kind="nvml", code="recovered"))
    return _state(event, *findings)


def _standing(fact: Fact, node: NodeMemory) -> list[Finding]:
    """What the source reported before about cards. Whether NVML starts is known with each of its facts."""
    source = _source(fact)
    reasons = (reason for incident in node.open.values() for reason in incident.reasons.values())
    found = [reason.finding for reason in reasons if reason.source == source and reason.ended is None and not reason.cured]
    found += [finding for held in node.held.values() if held.source == source for finding in held.findings]
    return [finding for finding in found if not finding.code.startswith("init-")]


def _exporter(fact: Fact) -> list[Finding] | None:
    """None: the exporter could not be read, which states nothing.

    An exporter that reloads shows no cards, or some, for a while: the findings wait for longer (`courses.WAITS`)."""
    rows, inventory, count = (fact.value.get(key) for key in ("rows", "inventory", "nvml_count"))
    if not isinstance(rows, tuple) or not isinstance(inventory, tuple):
        return None
    known = {str(uuid) for uuid in inventory}
    return judge_rows([str(uuid) for uuid in rows], known, nvml_count=_number(count), empty_for_s=RELOAD_S)[0]


def _major(driver: Any) -> int | None:
    major = str(driver or "").partition(".")[0]
    return int(major) if major.isascii() and major.isdigit() else None


def _kernel(event: FactSeen, node: NodeMemory, rules: Rules, now: float) -> Found | None:
    fact, record = event.fact, dict(event.fact.value)
    identity = f"{record['seq']}" if "seq" in record else f"{fact.at}|{fact.entity}|{fact.text}"
    if fact.check == Check.NVML_EVENTS:
        identity = f"{fact.check}|{identity}"
    if identity in node.records:
        return None
    card = card_of(record) or ""
    key = card or f"{fact.entity}|{fact.code}"
    node.bursts = {of: one for of, one in node.bursts.items() if now - one.last <= BURST_S}
    burst = node.bursts.get(key)
    if burst is None or len(burst.records) >= MOST_BURST:
        burst = node.bursts[key] = Burst(now, now)
    source = f"{Check.KERNEL_LOG if fact.check == Check.NVML_EVENTS else fact.check}|{key}|{burst.begun}"
    burst.last = now
    if fact.check == Check.NVML_EVENTS:
        record["event"] = True
        if any(_is_same(one, record) for one in burst.records):
            return None
    elif any(one.get("event") and _is_same(one, record) for one in burst.records):  # its line has details that an event lacks
        _forget_event(node, burst, fact, record, source)
    burst.records.append({**record, "at": now})
    uuids = {card: fact.entity.removeprefix("gpu:")} if fact.entity.startswith("gpu:") and card else {}
    judgement = judge(burst.records, rules, Context(rules.profile(box_of(node.labels)), node.driver, uuids))
    entity = fact.entity
    findings = tuple(
        finding if not entity.startswith("mig:") or not finding.entity.startswith("gpu:") else _of_instance(finding, entity)
        for finding in judgement.findings
    )
    if any(of.get("code") == CONTAINED for of in burst.records):
        remapped = (
            Action.RESET_WHEN_IDLE
        )  # a remap alone admits new work; with a contained error the card takes none until its reset
        findings = tuple(replace(f, also=Action.NOTIFY_OWNER) if f.action is remapped else f for f in findings)
    return Found(
        event.node,
        event.boot_id,
        findings,
        source=source,
        record=identity,
        wait_s=_wait(burst, rules, node.driver),
        pid=_number(record.get("pid")),
        earlier_boot=bool(record.get("previous_boot")),
    )


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (one.get("kind"), one.get("code")) == (other.get("kind"), other.get("code"))


def _forget_event(node: NodeMemory, burst: Burst, fact: Fact, record: Mapping[str, Any], source: str) -> None:
    """What was judged of an event of NVML before its line in the kernel log came."""
    burst.records = [one for one in burst.records if not (one.get("event") and _is_same(one, record))]
    seen = fact.entity, fact.code
    node.faults = [
        fault
        for fault in node.faults
        if fault.at < burst.begun or fault.pid is not None or (fault.finding.entity, fault.finding.code) != seen
    ]
    for incident in node.open.values():
        incident.reasons = {
            code: reason
            for code, reason in incident.reasons.items()
            if reason.source != source or (reason.finding.entity, reason.finding.code) != seen
        }


def _of_instance(finding: Finding, entity: str) -> Finding:
    return replace(finding, entity=entity)


def _wait(burst: Burst, rules: Rules, driver: int | None) -> float:
    """Until when the 154 behind a linked code may come; nothing to wait for once it is there."""
    codes = [_number(record.get("code")) for record in burst.records if record.get("kind", "xid") == "xid"]
    linked = any(
        rule is not None and rule.waits_for_recovery_action(driver) for rule in (rules.codes.get(code or 0) for code in codes)
    )
    return RECOVERY_ACTION_S if linked and 154 not in codes else 0.0


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _init(fact: Fact, node: NodeMemory) -> list[Finding]:
    """NVML does not start. On a node without cards that is no fault."""
    code = fact.value["init"]
    return judge_init(code if isinstance(code, int) else -1, known=sum(card.startswith("gpu:") for card in node.cards))


def _units(fact: Fact, *, nvswitch: bool) -> list[Finding]:
    """Of an agent's units the fabric manager of boxes with NVSwitches: whether the others should run, no table states."""
    units = {str(name): str(state) for name, state in fact.value.items() if isinstance(state, str)}
    of_agent = fact.value.get("units")
    if isinstance(of_agent, dict) and nvswitch and FABRIC_MANAGER in of_agent:
        units[FABRIC_MANAGER] = str(of_agent[FABRIC_MANAGER])
    return [finding for name, state in units.items() if (finding := _unit(name, state)) is not None]


def _unit(name: str, state: str) -> Finding | None:
    if name == PEERMEM and state in {"missing", "unloaded"}:
        return _software(name, Action.LOAD_MODULE, "the module is not loaded: RDMA copies through host memory")
    if state not in {"failed", "inactive", "dead"}:
        return None
    if name.removesuffix(".service") == FABRIC_MANAGER:
        return _software(FABRIC_MANAGER, Action.RESTART_FM, "the fabric manager does not run")
    return _software(name.removesuffix(".service"), Action.REPORT, f"the unit is {state}")


def _acs(fact: Fact) -> list[Finding]:
    """Access Control Services of bridges between cards and adapters, of a node without guests."""
    bridges = fact.value.get("redirecting")
    if not isinstance(bridges, tuple) or not bridges:
        return []
    why = f"PCI bridges redirect transfers between cards and adapters: {', '.join(map(str, bridges[:8]))}"
    return [Finding(NODE, "acs", "on", Severity.MISCONFIGURED, Blame.SOFTWARE, Scope.NODE, Action.ACS_OFF, REQUIREMENTS, why)]


def _software(code: str, action: Action, why: str) -> Finding:
    return Finding(NODE, "unit", code, Severity.MISCONFIGURED, Blame.SOFTWARE, Scope.NODE, action, REQUIREMENTS, why)


def _boot_wait(fact: Fact) -> float | None:
    uptime = fact.value.get("uptime_s")
    return BOOT_GRACE_S - float(uptime) if isinstance(uptime, int | float) and uptime < BOOT_GRACE_S - 60 else None


def _hang(fact: Fact) -> Finding:
    reader = str(fact.value.get("reader") or fact.code.partition(":")[2] or "unknown")[:MOST_NAME]
    why = f"reader {reader} does not answer"
    return Finding(NODE, "hangs", reader, Severity.UNKNOWN, Blame.UNKNOWN, Scope.NODE, Action.REPORT, REQUIREMENTS, why)


def box_of(labels: Mapping[str, str]) -> str:
    """The box that a node's labels name. An operator's label counts before the model of its cards."""
    if profile := labels.get(PROFILE, ""):
        return profile
    return next(
        (value for key, value in labels.items() if key.endswith(("gpu.product", "gpu-model", "/profile", "accelerator"))), ""
    )

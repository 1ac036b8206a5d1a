"""What NVML states about a node at one time, against the profile of its box. Keys of a card are those of the case format; a key that is absent is well.

NOT_SUPPORTED is an answer (NVLinks of an L20, rows of a card with MIG instances), FUNCTION_NOT_FOUND an old driver: neither is a fault.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .assess import RECOVERY, REQUIREMENTS, recovery_finding
from .finding import Action, Blame, Finding, Scope, Severity
from .rules import Profile

Card = Mapping[str, Any]

MEMORY = "nvidia-memory-error-management"
NVML = "nvidia-nvml"

# nvmlReturn_t
SUCCESS, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, NOT_LOADED, TIMEOUT, NO_LIBRARY, NO_FUNCTION = 0, 3, 4, 6, 9, 10, 12, 13
CORRUPTED_INFOROM, LOST, RESET_REQUIRED, MISMATCH, GPU_NOT_FOUND = 14, 15, 16, 18, 28
_NO_FAULT = frozenset((SUCCESS, NOT_SUPPORTED, NO_FUNCTION))

# nvmlClocksEventReasons
HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE = 0x8, 0x40, 0x80

#: Times in a row that a reading has to show a fault. A reading that does not state how often it was seen counts as confirmed.
POLLS = {"lost": 2, "nvlink": 2, "clocks": 3, "margin": 3, "pcie": 3, "hang": 3}
#: A call of NVML that takes longer hangs; DCGM's own hung for 45 s (https://github.com/NVIDIA/DCGM/issues/313).
DEADLINE_S = 10.0
#: After a boot the fabric manager needs some minutes. Our choice, as are the numbers of readings above.
FABRIC_BOOT_S = 600.0
#: Single-bit errors a day (our choice); the total states nothing.
SBE_A_DAY = 1000.0
#: All rows that a card can remap (NVIDIA's memory error management).
ROWS = 512
#: Errors of the SRAM where the driver has no flag for them (https://github.com/scitix/sichek).
SRAM_ERRORS = 4

_FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
_INCORRECT = {
    2: "system GUID",
    3: "chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "firmware",
    7: "location",
    8: "GPU state",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    cards: Sequence[Card] = ()
    init: int = SUCCESS  #: what nvmlInit returned
    count: int | None = None  #: cards that NVML lists
    inventory: Sequence[str] | int | None = None  #: cards known before
    listed: Sequence[str] | None = None  #: cards listed now
    units: Mapping[str, str] = field(default_factory=dict)  #: state by systemd unit
    modules: Mapping[str, bool] = field(default_factory=dict)  #: whether it is loaded
    uptime_s: float | None = None
    maintenance: bool = False  #: an operator's, or a reset of ours
    dcgm: str | None = None
    polls: int | None = None

    @property
    def known(self) -> int | None:
        """How many cards were known before."""
        known = self.inventory
        return known if known is None or isinstance(known, int) else len(known)


def judge_snapshot(snapshot: Snapshot, profile: Profile) -> list[Finding]:
    """All findings; none: the node is well."""
    if snapshot.maintenance:
        return []
    if snapshot.init not in _NO_FAULT:
        return judge_init(snapshot.init, snapshot.known)
    out = [*_missing(snapshot, profile), *_units(snapshot, profile)]
    most = _most_links(snapshot, profile)
    for index, card in enumerate(snapshot.cards):
        out += _card(card, f"gpu:{card.get('uuid', card.get('pci', index))}", profile, snapshot, most)
    if not out and snapshot.dcgm is not None and snapshot.dcgm.lower() not in {"healthy", "pass", "0"}:
        why = f"DCGM reports {snapshot.dcgm} and NVML nothing: its diagnostics decide."
        out.append(
            Finding("node", "nvml", "dcgm", Severity.SUSPECT, Blame.UNKNOWN, Scope.GPU, Action.RUN_DIAGNOSTICS, NVML, why)
        )
    return out


def judge_card(card: Card, entity: str, profile: Profile) -> list[Finding]:
    """All findings about one card; the number of its NVLinks is that of the profile."""
    return _card(card, entity, profile, Snapshot(cards=(card,)), profile.nvlinks)


def lost_cards(snapshot: Snapshot) -> list[str]:
    """UUIDs of cards that the inventory knows and NVML does not list, or reports as lost."""
    if snapshot.maintenance:
        return []
    gone = [str(c["uuid"]) for c in snapshot.cards if c.get("every_call") in {LOST, NOT_FOUND, GPU_NOT_FOUND} and "uuid" in c]
    if snapshot.listed is not None and isinstance(snapshot.inventory, Sequence):
        gone += [uuid for uuid in snapshot.inventory if uuid not in snapshot.listed and uuid not in gone]
    return sorted(gone)


def judge_init(code: int, known: int | None) -> list[Finding]:
    """NVML returned this code when it started; `known`: how many cards were known before."""
    if code in {NO_LIBRARY, NOT_LOADED} and known == 0:
        return []  # a node without cards

    severity, blame, action, why = _INIT.get(
        code,
        (
            Severity.UNKNOWN,
            Blame.UNKNOWN,
            Action.REPORT,
            f"NVML does not start (return code {code}): the cards are unknown.",
        ),
    )
    return [Finding("node", "nvml", f"init-{code}", severity, blame, Scope.NODE, action, NVML, why)]


#: What a return code of nvmlInit means for the node.
_INIT = {
    MISMATCH: (
        Severity.FATAL_NODE,
        Blame.OPERATOR,
        Action.REBOOT,
        "The driver was replaced under the loaded module: only a restart makes both fit.",
    ),
    NOT_LOADED: (Severity.FATAL_NODE, Blame.SOFTWARE, Action.CORDON, "The driver is not loaded."),
    NO_LIBRARY: (Severity.FATAL_NODE, Blame.SOFTWARE, Action.CORDON, "The driver's library is not installed."),
    LOST: (Severity.FATAL_NODE, Blame.HARDWARE, Action.REBOOT, "A card is lost; NVML does not start."),
    NO_PERMISSION: (Severity.MISCONFIGURED, Blame.OPERATOR, Action.REPORT, "The agent may not read NVML."),
}


def _missing(snapshot: Snapshot, profile: Profile) -> Iterator[Finding]:
    lost = [uuid for uuid in lost_cards(snapshot) if snapshot.listed is not None and uuid not in snapshot.listed]
    known = snapshot.known
    now = snapshot.count if snapshot.count is not None else None if snapshot.listed is None else len(snapshot.listed)
    if lost or (known is not None and now is not None and now < known):
        number = len(lost) or (known or 0) - (now or 0)
        entity = f"gpu:{lost[0]}" if len(lost) == 1 else "node"
        why = f"{number} of {known} known cards are not listed."
        if not _confirmed(snapshot.polls, "lost"):
            yield Finding(entity, "nvml", "lost", Severity.SUSPECT, Blame.UNKNOWN, Scope.NODE, Action.WATCH, NVML, why)
        elif now is not None and known is not None and now >= known:
            why = f"{why} As many are listed: the cards were replaced, and have to pass validation."
            yield Finding("node", "nvml", "replaced", Severity.INFO, Blame.OPERATOR, Scope.NODE, Action.VALIDATE, NVML, why)
        else:
            yield Finding(entity, "nvml", "lost", Severity.FATAL_NODE, Blame.HARDWARE, Scope.NODE, Action.REBOOT, NVML, why)
    elif known is None and now is not None and profile.cards is not None and now < profile.cards:
        why = f"The node joins with {now} cards, a {profile.name} has {profile.cards}: closed until an operator accepts it."
        yield Finding(
            "node", "nvml", "few-cards", Severity.DEGRADED, Blame.UNKNOWN, Scope.NODE, Action.CORDON, REQUIREMENTS, why
        )


def _confirmed(polls: int | None, what: str) -> bool:
    return polls is None or polls >= POLLS[what]


_DOWN = frozenset(("failed", "inactive", "dead", "stopped"))


def _units(snapshot: Snapshot, profile: Profile) -> Iterator[Finding]:
    for unit, state in snapshot.units.items():
        name = unit.removesuffix(".service")
        if str(state) not in _DOWN:
            continue
        if name == "nvidia-fabricmanager":
            if profile.nvswitch:
                yield _fabric_manager(snapshot, "The fabric manager does not run: cards cannot use NVLink.")
        else:
            why = f"{name} is {state}."
            yield Finding(
                "node", "unit", name, Severity.MISCONFIGURED, Blame.SOFTWARE, Scope.NODE, Action.REPORT, REQUIREMENTS, why
            )
    if snapshot.modules.get("nvidia_peermem") is False:
        why = "nvidia_peermem is not loaded: transfers between cards and adapters go through memory."
        action = Action.LOAD_MODULE
        yield Finding(
            "node", "module", "nvidia_peermem", Severity.MISCONFIGURED, Blame.SOFTWARE, Scope.NODE, action, REQUIREMENTS, why
        )


def _fabric_manager(snapshot: Snapshot, why: str) -> Finding:
    if snapshot.uptime_s is not None and snapshot.uptime_s < FABRIC_BOOT_S:
        text = f"{why} The node started {snapshot.uptime_s:g} s ago; it has {FABRIC_BOOT_S:g} s."
        return Finding(
            "node", "fabric", "starting", Severity.INFO, Blame.NONE, Scope.MULTI_GPU, Action.WATCH, REQUIREMENTS, text
        )
    return Finding(
        "node", "fabric", "manager", Severity.DEGRADED, Blame.SOFTWARE, Scope.MULTI_GPU, Action.RESTART_FM, REQUIREMENTS, why
    )


def _most_links(snapshot: Snapshot, profile: Profile) -> int | None:
    """Links that each card should have: by the profile; where none is known, as many as the best of its neighbours."""
    if profile.nvlinks is not None:
        return profile.nvlinks
    return max((int(c["nvlinks_active"]) for c in snapshot.cards if isinstance(c.get("nvlinks_active"), int)), default=None)


def _card(card: Card, entity: str, profile: Profile, snapshot: Snapshot, links: int | None) -> list[Finding]:
    calls = int(card.get("every_call", SUCCESS))
    if calls not in _NO_FAULT:
        return [_every_call(entity, calls)]
    out = [found for check in _CHECKS for found in check(card, entity)]
    out += _links(card, entity, links)
    out += _fabric(card, entity, snapshot)
    out += _margin(card, entity, profile)
    out += _hang(card, entity)
    # The driver's own word has the highest authority: what it asks for includes what the counters show.
    asked = [f for f in out if f.authority == RECOVERY]
    if asked and any(f.action is Action.REPLACE for f in out):
        return [replace(asked[0], also=Action.REPLACE)]
    return asked or out


def _every_call(entity: str, code: int) -> Finding:
    def decided(severity: Severity, blame: Blame, scope: Scope, action: Action, why: str) -> Finding:
        return Finding(entity, "nvml", f"return-{code}", severity, blame, scope, action, NVML, why)

    if code in {LOST, NOT_FOUND, GPU_NOT_FOUND}:
        why = "NVML reports the card as lost: only a restart of the machine brings it back."
        return decided(Severity.FATAL_NODE, Blame.HARDWARE, Scope.NODE, Action.REBOOT, why)
    if code == RESET_REQUIRED:
        return decided(
            Severity.FATAL_GPU,
            Blame.HARDWARE,
            Scope.GPU,
            Action.RESET,
            "NVML answers nothing but that the card has to be reset.",
        )
    if code == NO_PERMISSION:
        return decided(Severity.MISCONFIGURED, Blame.OPERATOR, Scope.GPU, Action.REPORT, "The agent may not read the card.")
    if code == CORRUPTED_INFOROM:
        return _inforom_finding(entity)
    why = f"NVML does not answer for the card (return code {code}): its state is unknown, which is neither well nor fatal."
    return decided(Severity.UNKNOWN, Blame.UNKNOWN, Scope.GPU, Action.REPORT, why)


def _recovery(card: Card, entity: str) -> Iterator[Finding]:
    value = card.get("recovery_action", 0)
    if isinstance(value, int) and value != 0:
        finding = recovery_finding(entity, value, kind="nvml", code="recovery-action")
        last = card.get("last_xid")
        yield replace(finding, why=f"{finding.why.rstrip('.')} (last XID {last}).") if last else finding


def _rows(card: Card, entity: str) -> Iterator[Finding]:
    rows = card.get("remapped_rows")
    if not isinstance(rows, Mapping):
        return
    if rows.get("failure") or _number(rows.get("uncorrectable")) >= ROWS:
        yield _memory(
            entity, "row-failure", Severity.FATAL_GPU, Action.REPLACE, "A row could not be remapped: return the card."
        )
    elif rows.get("pending"):
        why = "A row is to be remapped: new work may start, and the next reset repairs it."
        yield _memory(entity, "row-pending", Severity.DEGRADED, Action.RESET_WHEN_IDLE, why)
    elif _number(rows.get("uncorrectable")):
        why = "Rows were remapped after uncorrectable errors, and are repaired."
        yield _memory(entity, "rows", Severity.INFO, Action.WATCH, why)


def _histogram(card: Card, entity: str) -> Iterator[Finding]:
    banks = card.get("histogram")
    if not isinstance(banks, Mapping):
        return
    if _number(banks.get("none")):
        why = f"{banks['none']} memory banks have no spare row left: the next error there cannot be repaired."
        yield _memory(entity, "histogram", Severity.DEGRADED, Action.TICKET, why)
    elif _number(banks.get("low")):
        yield _memory(
            entity, "histogram", Severity.INFO, Action.WATCH, f"{banks['low']} memory banks have few spare rows left."
        )


def _ecc(card: Card, entity: str) -> Iterator[Finding]:
    errors = card.get("ecc_aggregate")
    sram = sum(_number(errors.get(key)) for key in ("sram_parity", "sram_secded")) if isinstance(errors, Mapping) else 0
    flag = card.get("sram_threshold_exceeded")
    if flag is True:
        yield _memory(
            entity,
            "sram",
            Severity.FATAL_GPU,
            Action.REPLACE,
            "The driver's flag for errors of the SRAM is set: return the card.",
        )
    elif sram >= SRAM_ERRORS and flag is not False:
        why = f"{sram:g} errors of the SRAM, and the driver has no flag for it; sichek returns a card at {SRAM_ERRORS}."
        yield _memory(entity, "sram", Severity.DEGRADED, Action.TICKET, why)
    elif sram:
        yield _memory(
            entity, "sram", Severity.INFO, Action.WATCH, f"{sram:g} errors of the SRAM, below the driver's threshold."
        )
    if _number(card.get("ecc_dbe_volatile")):
        why = f"{card['ecc_dbe_volatile']} double-bit errors since the driver was loaded: the card is reset."
        yield _memory(entity, "dbe", Severity.FATAL_GPU, Action.RESET, why)
    rate = _number(card.get("ecc_sbe_per_s")) * 86400
    if rate > SBE_A_DAY:
        yield _memory(
            entity, "sbe", Severity.INFO, Action.WATCH, f"{rate:.0f} single-bit errors a day; corrected, but more than usual."
        )


def _repairs(card: Card, entity: str) -> Iterator[Finding]:
    if card.get("unrepairable_memory") is True:
        yield _memory(
            entity, "unrepairable", Severity.FATAL_GPU, Action.REPLACE, "The memory cannot be repaired: return the card."
        )
    if card.get("channel_repair_pending") is True or card.get("tpc_repair_pending") is True:
        why = "A repair is staged; the next reset applies it."
        yield _memory(entity, "repair-pending", Severity.DEGRADED, Action.RESET_WHEN_IDLE, why)


def _inforom(card: Card, entity: str) -> Iterator[Finding]:
    if card.get("inforom_validate") == CORRUPTED_INFOROM:
        yield _inforom_finding(entity)


def _inforom_finding(entity: str) -> Finding:
    why = "The card's InfoROM is corrupted: restart once; if it remains, NVIDIA's support."
    return Finding(
        entity, "nvml", "inforom", Severity.DEGRADED, Blame.HARDWARE, Scope.GPU, Action.REBOOT, NVML, why, also=Action.TICKET
    )


_MODES = (
    ("persistence", "Persistence mode is off: each job pays for a start of the driver."),
    ("ecc", "ECC is off: errors of memory go unnoticed."),
)


def _modes(card: Card, entity: str) -> Iterator[Finding]:
    for key, why in _MODES:
        if card.get(key) is False or card.get(key) == "disabled":
            yield Finding(
                entity, "nvml", key, Severity.MISCONFIGURED, Blame.OPERATOR, Scope.GPU, Action.REPORT, REQUIREMENTS, why
            )
    if "mig_expected" in card and card.get("mig") != card["mig_expected"]:
        why = f"MIG mode is {card.get('mig')}, and should be {card['mig_expected']}."
        yield Finding(
            entity, "nvml", "mig", Severity.MISCONFIGURED, Blame.OPERATOR, Scope.GPU, Action.REPORT, REQUIREMENTS, why
        )


def _clocks(card: Card, entity: str) -> Iterator[Finding]:
    reasons = int(_number(card.get("clocks_event_reasons")))
    brake, slow = reasons & POWER_BRAKE, reasons & (HW_THERMAL | HW_SLOWDOWN)
    if not brake and not slow:
        return
    why = "The power brake slows the card: the chassis, not the card." if brake else "The hardware slows the card's clocks."
    scope = Scope.NODE if brake else Scope.GPU
    severity, action = (
        (Severity.DEGRADED, Action.TICKET) if _confirmed(card.get("polls"), "clocks") else (Severity.SUSPECT, Action.WATCH)
    )
    yield Finding(entity, "nvml", "clocks", severity, Blame.HARDWARE, scope, action, REQUIREMENTS, why)


def _pcie(card: Card, entity: str) -> Iterator[Finding]:
    """Width always; generation only under load: an idle link lowers it by design."""
    pcie = card.get("pcie")
    if not isinstance(pcie, Mapping):  # as node-agent publishes it
        pcie = {"cur_width": card.get("pcie_width"), "max_width": card.get("pcie_width_max")}
    narrow = 0 < _number(pcie.get("cur_width")) < _number(pcie.get("max_width"))
    slow = bool(card.get("load")) and _number(pcie.get("cur_gen")) < _number(pcie.get("max_gen"))
    if (narrow or slow) and _confirmed(card.get("polls"), "pcie"):
        what = (
            f"{pcie.get('cur_width')} of {pcie.get('max_width')} lanes"
            if narrow
            else f"generation {pcie.get('cur_gen')} of {pcie.get('max_gen')}"
        )
        why = f"The PCIe link runs with {what}."
        yield Finding(entity, "nvml", "pcie", Severity.DEGRADED, Blame.HARDWARE, Scope.GPU, Action.TICKET, REQUIREMENTS, why)


_CHECKS: tuple[Callable[[Card, str], Iterator[Finding]], ...] = (
    _recovery,
    _rows,
    _histogram,
    _ecc,
    _repairs,
    _inforom,
    _modes,
    _clocks,
    _pcie,
)


def _links(card: Card, entity: str, expected: int | None) -> Iterator[Finding]:
    """Links of a divided card are off by design."""
    if not expected or card.get("mig") is True or card.get("mig") == "enabled":
        return
    active = card.get("nvlinks_active")
    if active is None and isinstance(card.get("nvlinks_inactive"), int | list):
        off = card["nvlinks_inactive"]
        active = expected - (len(off) if isinstance(off, list) else off)
    if not isinstance(active, int) or active >= expected:
        return
    why = f"{active} of {expected} NVLinks are active; work on one card continues."
    severity, action = (
        (Severity.DEGRADED, Action.MULTI_GPU_OFF)
        if _confirmed(card.get("polls"), "nvlink")
        else (Severity.SUSPECT, Action.WATCH)
    )
    yield Finding(entity, "nvml", "nvlink", severity, Blame.HARDWARE, Scope.MULTI_GPU, action, REQUIREMENTS, why)


def _fabric(card: Card, entity: str, snapshot: Snapshot) -> Iterator[Finding]:
    fabric = card.get("fabric")
    if not isinstance(fabric, Mapping) or card.get("mig") is True:
        return
    state = fabric.get("state", 3)
    word = (
        _FABRIC_STATES.get(state, str(state))
        if isinstance(state, int)
        else str(state).lower().replace("_", "-").replace(" ", "-")
    )
    if word == "not-supported":
        return
    if word != "completed":
        yield replace(_fabric_manager(snapshot, f"The fabric state is {word}: the card cannot use NVLink."), entity=entity)
        return
    if _number(fabric.get("status")):
        why = f"The card did not join the fabric (status {fabric['status']})."
        yield Finding(
            entity, "nvml", "fabric", Severity.DEGRADED, Blame.UNKNOWN, Scope.MULTI_GPU, Action.MULTI_GPU_OFF, NVML, why
        )
    yield from _fabric_health(fabric.get("health"), entity)


def _fabric_health(health: Any, entity: str) -> Iterator[Finding]:
    flags = fabric_flags(health) if isinstance(health, int) and not isinstance(health, bool) else health
    if not isinstance(flags, Mapping):
        return
    wrong = flags.get("incorrect_configuration")
    if wrong and wrong not in {"none", 1}:
        why = f"The fabric is configured wrongly: {_INCORRECT.get(wrong, wrong)}."
        yield Finding(
            entity, "nvml", "fabric", Severity.MISCONFIGURED, Blame.OPERATOR, Scope.MULTI_GPU, Action.MULTI_GPU_OFF, NVML, why
        )
    for key, what in (
        ("degraded_bw", "has a degraded bandwidth"),
        ("route_unhealthy", "has an unhealthy route"),
        ("access_timeout", "recovers from an access that timed out"),
        ("access_timeout_recovery", "recovers from an access that timed out"),
    ):
        if flags.get(key) is True:
            why = f"The card {what} in the NVLink fabric; work on one card continues."
            yield Finding(
                entity, "nvml", "fabric", Severity.DEGRADED, Blame.HARDWARE, Scope.MULTI_GPU, Action.MULTI_GPU_OFF, NVML, why
            )
    if flags.get("route_recovery") is True:
        why = "The fabric recovers a route: it passes, or the health mask shows what is left."
        yield Finding(entity, "nvml", "fabric", Severity.DEGRADED, Blame.HARDWARE, Scope.MULTI_GPU, Action.WATCH, NVML, why)


def fabric_flags(mask: int) -> dict[str, Any]:
    """nvmlGpuFabricInfoV: fields of two bits, 1 true, 2 false, 0 unknown; the wrong configuration in bits 8 to 11."""
    fields = {"degraded_bw": 0, "route_recovery": 2, "route_unhealthy": 4, "access_timeout": 6}
    out: dict[str, Any] = {name: mask >> bit & 3 == 1 for name, bit in fields.items()}
    return out | {"incorrect_configuration": mask >> 8 & 0xF}


def _margin(card: Card, entity: str, profile: Profile) -> Iterator[Finding]:
    """The margin counts down to the slowdown's own offset, which is negative; 0 is the limit of operation."""
    margin = card.get("tlimit_margin")
    offset = card.get("slowdown_tlimit", profile.margin)
    if not isinstance(margin, int | float) or not isinstance(offset, int | float) or margin > offset:
        return
    why = f"The thermal margin is {margin:g}, and the hardware slows down at {offset:g}."
    severity, action = (
        (Severity.DEGRADED, Action.TICKET) if _confirmed(card.get("polls"), "margin") else (Severity.SUSPECT, Action.WATCH)
    )
    yield Finding(entity, "nvml", "margin", severity, Blame.HARDWARE, Scope.GPU, action, REQUIREMENTS, why)


def _hang(card: Card, entity: str) -> Iterator[Finding]:
    took = _number(card.get("nvml_call_s"))
    if took < DEADLINE_S:
        return
    why = f"A question to NVML took {took:g} s: the state of the card is unknown."
    if card.get("polls") is not None and _confirmed(card["polls"], "hang"):
        why = f"{card['polls']} questions to NVML in a row hung: the driver of the node does not answer."
        yield Finding(entity, "nvml", "hang", Severity.FATAL_NODE, Blame.UNKNOWN, Scope.NODE, Action.CORDON, REQUIREMENTS, why)
    else:
        yield Finding(entity, "nvml", "hang", Severity.UNKNOWN, Blame.UNKNOWN, Scope.GPU, Action.REPORT, REQUIREMENTS, why)


def _memory(entity: str, code: str, severity: Severity, action: Action, why: str) -> Finding:
    return Finding(entity, "nvml", code, severity, Blame.HARDWARE, Scope.GPU, action, MEMORY, why)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0

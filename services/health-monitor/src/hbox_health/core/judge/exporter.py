"""The text of DCGM's exporter. The gauge of the last XID stays for ever and is no event; a card without rows is lost only if the inventory knows it, and NVML
does not list it either."""

from collections.abc import Collection
from dataclasses import replace

from hbox_common.health.dcgm import Scrape

from .assess import Context, xid_finding
from .finding import Action, Blame, Finding, Scope, Severity
from .rules import Rules

AUTHORITY = "nvidia-dcgm"

#: An exporter that reloads answers without rows for a while.
RELOAD_S = 120.0


def judge_exporter(
    scrape: Scrape,
    rules: Rules,
    context: Context,
    *,
    inventory: Collection[str] | int | None = None,
    nvml_count: int | None = None,
    empty_for_s: float | None = None,
) -> tuple[list[Finding], list[str]]:
    """Findings, and the UUIDs of cards of the inventory without rows. inventory: UUIDs, or their number where no more is known."""
    findings, absent = judge_rows(scrape.cards, inventory, nvml_count=nvml_count, empty_for_s=empty_for_s)
    return findings + judge_values(scrape, rules, context), absent


def judge_rows(
    shown: Collection[str], inventory: Collection[str] | int | None, *, nvml_count: int | None, empty_for_s: float | None
) -> tuple[list[Finding], list[str]]:
    """As `judge_exporter`, of the cards that the exporter shows."""
    if not shown:
        expected = inventory if isinstance(inventory, int) else len(inventory or ())
        return _silent(expected, nvml_count, empty_for_s), []
    absent = sorted(set(inventory) - set(shown)) if inventory is not None and not isinstance(inventory, int) else []
    missing = len(absent) or (max(0, inventory - len(shown)) if isinstance(inventory, int) else 0)
    return (_absent(absent, missing, len(shown) + missing, nvml_count) if missing else []), absent


def judge_values(scrape: Scrape, rules: Rules, context: Context) -> list[Finding]:
    return _values(scrape, context) + _events(scrape, rules, context) + _health(scrape)


def _silent(expected: int, nvml_count: int | None, empty_for_s: float | None) -> list[Finding]:
    if nvml_count is not None and nvml_count < expected:
        why = f"NVML lists {nvml_count} cards of {expected}."
        return [
            Finding("node", "dcgm", "absent", Severity.FATAL_NODE, Blame.HARDWARE, Scope.NODE, Action.REBOOT, AUTHORITY, why)
        ]
    if not expected or (empty_for_s or 0.0) < RELOAD_S:
        return []
    why = "The exporter has had no rows for minutes: the exporter is at fault, which states nothing about the cards."
    return [Finding("node", "dcgm", "silent", Severity.UNKNOWN, Blame.SOFTWARE, Scope.NODE, Action.REPORT, AUTHORITY, why)]


def _absent(absent: list[str], missing: int, known: int, nvml_count: int | None) -> list[Finding]:
    entity = f"gpu:{absent[0]}" if len(absent) == 1 else "node"
    if nvml_count is not None and nvml_count >= known:
        why = f"{missing} cards have no rows, but NVML lists all: the exporter is at fault."
        return [Finding("node", "dcgm", "rows", Severity.INFO, Blame.SOFTWARE, Scope.NODE, Action.REPORT, AUTHORITY, why)]
    why = f"{missing} cards of the inventory have no rows: lost, as after XID 79."
    return [Finding(entity, "dcgm", "absent", Severity.FATAL_NODE, Blame.HARDWARE, Scope.NODE, Action.REBOOT, AUTHORITY, why)]


def _values(scrape: Scrape, context: Context) -> list[Finding]:
    out: list[Finding] = []

    def found(name: str, limit: float, severity: Severity, action: Action, why: str) -> None:
        for card, value in scrape.values(name).items():
            if value is not None and value >= limit:
                text = why.format(value=value)
                out.append(Finding(f"gpu:{card}", "dcgm", name, severity, Blame.HARDWARE, Scope.GPU, action, AUTHORITY, text))

    found(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        1,
        Severity.FATAL_GPU,
        Action.REPLACE,
        "A row could not be remapped: return the card.",
    )
    found(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        512,
        Severity.FATAL_GPU,
        Action.REPLACE,
        "All spare rows are used: return the card.",
    )
    found(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        1,
        Severity.FATAL_GPU,
        Action.RESET,
        "{value:g} double-bit errors since the driver was loaded.",
    )
    found(
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        1,
        Severity.DEGRADED,
        Action.RESET_WHEN_IDLE,
        "A row is to be remapped by the next reset.",
    )
    for card, celsius in scrape.values("DCGM_FI_DEV_GPU_TEMP").items():
        limit = context.profile.slowdown_c
        if celsius is not None and limit is not None and celsius >= limit:
            why = f"{celsius:g} degrees, and the hardware slows this model down at {limit}."
            out.append(
                Finding(
                    f"gpu:{card}", "dcgm", "hot", Severity.DEGRADED, Blame.HARDWARE, Scope.GPU, Action.TICKET, AUTHORITY, why
                )
            )
    return out


def _events(scrape: Scrape, rules: Rules, context: Context) -> list[Finding]:
    """XIDs and clock events that the exporter counted in its window; unlike the gauge of the last XID, these happened now."""
    out: list[Finding] = []
    for sample in scrape.samples:
        if sample.card is None or not sample.value:
            continue
        if (
            sample.name == "DCGM_EXP_XID_ERRORS_COUNT"
            and sample.labels.get("xid", "").isdigit()
            and sample.labels["xid"] != "0"
        ):
            finding = xid_finding({"code": int(sample.labels["xid"])}, rules, context)
            out.append(replace(finding, entity=f"gpu:{sample.card}", kind="dcgm"))
        slowed = sample.labels.get("clock_event", "")
        if sample.name == "DCGM_EXP_CLOCK_EVENTS_COUNT" and slowed in {
            "hw_thermal_slowdown",
            "hw_slowdown",
            "hw_power_brake_slowdown",
        }:
            why = f"{slowed.replace('_', ' ')}: {sample.value:g} times in the exporter's window."
            out.append(
                Finding(
                    f"gpu:{sample.card}",
                    "dcgm",
                    slowed,
                    Severity.DEGRADED,
                    Blame.HARDWARE,
                    Scope.GPU,
                    Action.TICKET,
                    AUTHORITY,
                    why,
                )
            )
    return out


#: What DCGM's watches stop, where it is less than the card.
_WATCHED = {"NVLINK": Scope.MULTI_GPU, "NVSWITCH": Scope.MULTI_GPU}


def _health(scrape: Scrape) -> list[Finding]:
    """DCGM's own opinion: a warning is recorded; a failure asks the card itself, whose recovery action has the higher authority."""
    out: list[Finding] = []
    for sample in scrape.samples:
        if sample.name != "DCGM_EXP_GPU_HEALTH_STATUS" or sample.card is None or not sample.value or sample.value < 10:
            continue
        watch, code = sample.labels.get("health_watch", ""), sample.labels.get("health_error_code", "")
        failed = sample.value >= 20
        finding = Finding(
            f"gpu:{sample.card}",
            "dcgm",
            code or watch,
            Severity.DEGRADED if failed else Severity.INFO,
            Blame.HARDWARE,
            _WATCHED.get(watch, Scope.GPU),
            Action.READ_RECOVERY_ACTION if failed else Action.REPORT,
            AUTHORITY,
            f"DCGM reports {watch} as {'failed' if failed else 'in warning'} ({code or 'no code'}).",
        )
        if failed and watch in _WATCHED:
            finding = replace(finding, action=Action.MULTI_GPU_OFF)
        out.append(finding)
    return out

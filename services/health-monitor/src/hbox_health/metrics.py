"""What health-monitor counts."""

from collections import Counter
from collections.abc import Iterable, Mapping

from hbox_common.model import Incident, IncidentState
from hbox_common.telemetry import counter, gauge, histogram

from .core.judge.courses import MAINTENANCE
from .core.judge.finding import Action, Severity
from .core.judge.happenings import Step
from .core.judge.kinds import family_of

NODES = gauge("health_nodes", "Nodes, by verdict", ["healthy"])
BAD_CARDS = gauge("health_bad_cards", "Cards excluded from scheduling")
VERDICTS = counter("health_verdicts", "Verdicts published")
DECISIONS = counter("health_node_decisions", "Cordon and uncordon decisions", ["action"])
ANSWERS = counter("health_node_answers", "Outcomes of cordon and uncordon decisions", ["action", "outcome"])
HELD_BACK = gauge("health_cordons_held_back", "Faulty nodes not cordoned because the cordon limit is reached")
UNSAID = gauge("health_messages_waiting", "Messages not yet published")
REJECTED = counter(
    "health_messages_rejected", "Messages dropped because the message format or the broker rejects them", ["type"]
)
REPORTS = counter("health_reports", "Reports of node agents that were judged")
REFUSED = counter(
    "health_reports_refused",
    "Reports, also of remedies, that were refused: foreign-node = published under another node's name",
    ["reason"],
)
REMEDIES = counter("health_remedies", "Results of remedies that node-remedy reported", ["verb", "outcome"])
GATE_JOBS = counter("health_gate_jobs", "What the binder reported of Jobs of checks, by outcome", ["outcome"])
WAITING = gauge("health_restrictions_waiting", "Nodes that the breaker of incidents holds back from a restriction of the node")
INCIDENTS = gauge("health_incidents", "Open incidents, by family of their kind", ["kind", "state"])
FOR_HANDS = gauge(
    "health_incidents_waiting", "Confirmed incidents that only an operator brings further, by family of their kind", ["kind"]
)
ENTERED = counter("health_incidents_entered", "Incidents that entered a state", ["kind", "state"])
_MINUTES = (60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
DETECT = histogram(
    "health_detect_seconds",
    "Seconds from the reading of a fault, by its agent's clock, until its incident was confirmed",
    ["kind"],
    (*_SECONDS, *_MINUTES),
)
ISOLATE = histogram(
    "health_isolate_seconds",
    "Seconds from the verdict until it was read back from the stream; if it closes the node, until the cordon was observed",
    ["kind"],
    (0.005, 0.01, 0.025, *_SECONDS, *_MINUTES),
)
RETURN = histogram(
    "health_return_seconds",
    "Seconds from the verdict until the hardware was schedulable again",
    ["kind"],
    (*_MINUTES, *(3600.0 * hours for hours in (2, 4, 8, 12, 24, 48, 96, 168))),
)
CLOCK_WRONG = counter(
    "health_detect_unmeasured", "Confirmed incidents whose agent's clock is in the future, or over a day behind", ["kind"]
)
LOST_HOURS = counter(
    "health_card_hours_lost",
    "Hours of cards that were out of use because of an incident, while health-monitor was running",
    ["kind", "blame"],
)

RULES_VALID = gauge(
    "health_rules_valid",
    "1 = the files in the folder of rules are in force; 0 = one cannot be used, and the former rules stay in force",
)
ORDERS = counter("health_orders", "Orders of operators that were accepted", ["verb"])


def count_incidents(found: Iterable[Incident]) -> None:
    """Set the gauge of open incidents."""
    found = list(found)
    INCIDENTS.clear()
    FOR_HANDS.clear()
    for kind, count in Counter(family_of(one.kind) for one in found if needs_hands(one)).items():
        FOR_HANDS.labels(kind).set(count)
    for (kind, state), count in Counter((family_of(one.kind), one.state.value) for one in found).items():
        INCIDENTS.labels(kind, state).set(count)


#: Actions that change nothing.
_OBSERVED = frozenset({Action.NONE, Action.REPORT, Action.WATCH, Action.READ_RECOVERY_ACTION, Action.NOTIFY_OWNER})
#: Severities of a report that asks for an operator.
_TO_SEE = frozenset({Severity.MISCONFIGURED, Severity.UNKNOWN})


def needs_hands(one: Incident) -> bool:
    """Whether a confirmed incident waits for an operator: no remedy of HBox runs, and neither an order nor time is expected to end it."""
    if one.state is not IncidentState.CONFIRMED or one.kind == MAINTENANCE or "exemption" in one.held_by:
        return False
    if one.action == Action.RESET_WHEN_IDLE:
        return "remedy" in one.held_by
    if one.action == Action.REPORT:
        return one.severity in _TO_SEE
    return one.action not in _OBSERVED


def entered(incident: Incident) -> None:
    ENTERED.labels(family_of(incident.kind), incident.state.value).inc()


_OF_STEP = {Step.DETECT: DETECT, Step.ISOLATE: ISOLATE, Step.RETURN: RETURN}


def measured(step: Step, family: str, seconds: float | None) -> None:
    if seconds is None:
        CLOCK_WRONG.labels(family).inc()
    else:
        _OF_STEP[step].labels(family).observe(seconds)


class LostCards:
    """Integrates cards out of use over time. Readings further apart than LONGEST_S show a process that did not run."""

    LONGEST_S = 60.0

    def __init__(self) -> None:
        self._cards: Mapping[tuple[str, str], float] = {}
        self._at = 0.0

    def count(self, cards: Mapping[tuple[str, str], float], now: float) -> None:
        """Count what was out of use since the last call; `cards` are out of use from `now` on."""
        hours = min(now - self._at, self.LONGEST_S) / 3600
        for key, number in self._cards.items():
            LOST_HOURS.labels(*key).inc(number * hours)
        self._cards, self._at = cards, now

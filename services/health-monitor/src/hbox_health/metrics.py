"""What health-monitor counts."""

from collections import Counter
from collections.abc import Iterable

from hbox_common.model import Incident
from hbox_common.telemetry import counter, gauge

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
WAITING = gauge("health_restrictions_waiting", "Nodes that the breaker of incidents holds back from a restriction of the node")
INCIDENTS = gauge("health_incidents", "Open incidents", ["kind", "state"])

RULES_VALID = gauge(
    "health_rules_valid",
    "1 = the files in the folder of rules are in force; 0 = one cannot be used, and the former rules stay in force",
)
ORDERS = counter("health_orders", "Orders of operators that were accepted", ["verb"])


def count_incidents(found: Iterable[Incident]) -> None:
    """Set the gauge of open incidents."""
    INCIDENTS.clear()
    for (kind, state), count in Counter((one.kind, one.state.value) for one in found).items():
        INCIDENTS.labels(kind, state).set(count)

"""What health-monitor counts."""

from hbox_common.telemetry import counter, gauge

NODES = gauge("health_nodes", "Nodes, by verdict", ["healthy"])
BAD_CARDS = gauge("health_bad_cards", "Cards excluded from scheduling")
VERDICTS = counter("health_verdicts", "Verdicts published")
DECISIONS = counter("health_node_decisions", "Cordon and uncordon decisions", ["action"])
ANSWERS = counter("health_node_answers", "Outcomes of cordon and uncordon decisions", ["action", "outcome"])
HELD_BACK = gauge("health_cordons_held_back", "Faulty nodes not cordoned because the cordon limit is reached")
UNSAID = gauge("health_messages_waiting", "Messages not yet published")

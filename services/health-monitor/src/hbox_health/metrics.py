"""What health-monitor counts."""

from hbox_common.telemetry import counter, gauge

NODES = gauge("health_nodes", "Nodes by verdict", ["healthy"])
BAD_CARDS = gauge("health_bad_cards", "Cards that may not be used")
VERDICTS = counter("health_verdicts", "Verdicts published")
DECISIONS = counter("health_node_decisions", "Cordons and uncordons decided", ["action"])
ANSWERS = counter("health_node_answers", "What became of them", ["action", "outcome"])
HELD_BACK = gauge("health_cordons_held_back", "Nodes that are not cordoned because too many are")
UNSAID = gauge("health_messages_waiting", "Messages that are not published yet")

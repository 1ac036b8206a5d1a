"""What topology-collector counts."""

from hbox_common.telemetry import counter, gauge, histogram

NODES = gauge("topology_nodes", "Nodes in the inventory")
CARDS = gauge("topology_cards", "Cards in the inventory", ["healthy"])
WARNINGS = gauge("topology_node_warnings", "Nodes with something in their object that could not be read")
HYPERNODES = gauge("topology_hypernodes", "Domains of the fabric that were said last")
HYPERNODE_PROBLEMS = gauge("topology_hypernode_problems", "Parts of HyperNodes that cannot be read, and are left out")
MEASURED = gauge("topology_nodes_measured", "Nodes of which it is known what they really use")
STATES = counter("topology_states", "Node states published")
QUIET = counter("topology_quiet_changes", "Changes of node objects that scheduling cannot see")
PUBLISH = histogram("topology_publish_seconds", "From taking up to 64 states to the broker's acknowledgement of all of them")

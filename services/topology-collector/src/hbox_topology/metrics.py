"""What topology-collector counts."""

from hbox_common.telemetry import counter, gauge, histogram

NODES = gauge("topology_nodes", "Nodes in the inventory")
CARDS = gauge("topology_cards", "Cards in the inventory", ["healthy"])
WARNINGS = gauge("topology_node_warnings", "Nodes with something in their object that could not be read")
HYPERNODES = gauge("topology_hypernodes", "Domains of the fabric that were said last")
HYPERNODE_PROBLEMS = gauge("topology_hypernode_problems", "Parts of HyperNodes that cannot be read, and are left out")
ZONE_PROBLEMS = gauge("topology_zone_object_problems", "NodeResourceTopology and Numatopology objects that cannot be read")
FABRIC_AGE = gauge("topology_fabric_age_seconds", "Since a fabric's source confirmed what is known of it", ["fabric"])
FABRIC_HOSTS = gauge("topology_fabric_hosts", "Machines in units of a fabric", ["fabric"])
FABRIC_UNITS = gauge("topology_fabric_units", "Units (leaf groups) of a fabric", ["fabric"])
FABRIC_GAPS = gauge("topology_fabric_gaps", "What is wrong with the cables of a fabric", ["fabric", "kind"])
FABRIC_HELD = gauge("topology_fabric_held", "1 while a fabric's source cannot be read, or is not believed", ["fabric"])
FABRIC_FAILURES = counter("topology_fabric_failures", "Readings of a fabric's source that failed", ["fabric"])
FABRIC_BUILD = histogram("topology_fabric_build_seconds", "From rows of ports to the tree")
EXPORTED = gauge("topology_hypernodes_exported", "HyperNodes that we keep for others to read")
MEASURED = gauge("topology_nodes_measured", "Nodes of which it is known what they really use")
STATES = counter("topology_states", "Node states published")
QUIET = counter("topology_quiet_changes", "Changes of node objects that scheduling cannot see")
PUBLISH = histogram("topology_publish_seconds", "From taking up to 64 states to the broker's acknowledgement of all of them")

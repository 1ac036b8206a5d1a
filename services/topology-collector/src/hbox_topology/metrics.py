"""What topology-collector counts."""

from hbox_common.telemetry import counter, gauge, histogram

NODES = gauge("topology_nodes", "Nodes in the inventory")
CARDS = gauge("topology_cards", "Cards in the inventory", ["healthy"])
WARNINGS = gauge("topology_node_warnings", "Nodes whose object has a part that could not be read")
UNREPORTED = gauge(
    "topology_nodes_without_report", "Nodes without a first report of node-agent: waiting for it, or used without it", ["state"]
)
HYPERNODES = gauge("topology_hypernodes", "Domains in the last published fabric")
HYPERNODE_PROBLEMS = gauge("topology_hypernode_problems", "Invalid and skipped parts of HyperNodes")
ZONE_PROBLEMS = gauge("topology_zone_object_problems", "Invalid NodeResourceTopology and Numatopology objects")
FABRIC_AGE = gauge("topology_fabric_age_seconds", "Seconds since a fabric's source last confirmed it", ["fabric"])
FABRIC_HOSTS = gauge("topology_fabric_hosts", "Hosts in units of a fabric", ["fabric"])
FABRIC_UNITS = gauge("topology_fabric_units", "Units (leaf groups) of a fabric", ["fabric"])
FABRIC_GAPS = gauge("topology_fabric_gaps", "Cabling faults of a fabric, by kind", ["fabric", "kind"])
FABRIC_HELD = gauge(
    "topology_fabric_held", "1 while a fabric's source is unreadable or its data is rejected as implausible", ["fabric"]
)
FABRIC_FAILURES = counter("topology_fabric_failures", "Failed readings of a fabric's source", ["fabric"])
FABRIC_BUILD = histogram("topology_fabric_build_seconds", "Seconds to build the fabric tree from port rows")
EXPORTED = gauge("topology_hypernodes_exported", "HyperNodes that topology-collector writes for other schedulers")
MEASURED = gauge("topology_nodes_measured", "Nodes with measured resource usage")
STATES = counter("topology_states", "Node states published")
QUIET = counter("topology_quiet_changes", "Node object changes without effect on scheduling")
PUBLISH = histogram(
    "topology_publish_seconds", "Seconds from taking up to 64 node states to the broker's acknowledgement of all"
)

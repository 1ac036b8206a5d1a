"""What node-agent counts."""

from hbox_common.telemetry import counter, gauge, histogram

NODES = gauge("agent_nodes", "Nodes that this process speaks for: one, but of an emulated cluster")
SILENT = gauge("agent_silent_kubelets", "Of them, those whose kubelet does not answer")
UNREAD = gauge("agent_unread_files", "Files of kubelets, and parts of /sys, that are there and cannot be read")
READS = counter("agent_kubelet_reads", "Questions to kubelets, by whether they were answered", ["outcome"])
SAID = counter("agent_messages", "Messages about nodes' devices")
READ_S = histogram("agent_kubelet_read_seconds", "From asking a kubelet what it gave to whom to its whole answer")
NVML = counter("agent_nvml_reads", "Questions to NVML, by whether it answered", ["outcome"])

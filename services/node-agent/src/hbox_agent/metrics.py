"""What node-agent counts."""

from hbox_common.telemetry import counter, gauge, histogram

NODES = gauge("agent_nodes", "Nodes that this process reports: one, except in an emulated cluster")
SILENT = gauge("agent_silent_kubelets", "Nodes of agent_nodes whose kubelet does not answer")
UNREAD = gauge("agent_unread_files", "Existing files of kubelets and /sys that could not be read")
READS = counter("agent_kubelet_reads", "Kubelet queries, by outcome", ["outcome"])
MESSAGES = counter("agent_messages", "Messages published about nodes' devices")
READ_S = histogram("agent_kubelet_read_seconds", "Seconds of one kubelet query for allocated devices")
NVML = counter("agent_nvml_reads", "NVML readings, by outcome", ["outcome"])
FACTS = counter("agent_facts", "Observations of health, changed or not, by check", ["check"])
REPORTS = counter("agent_reports", "Reports published about nodes' health")
HANGS = counter("agent_reader_hangs", "Calls of a reader of health that did not return by their deadline, by check", ["check"])
NVML_EVENTS = counter(
    "agent_nvml_events", "Events of NVML: published, paired with a kernel record, dropped, garbage", ["outcome"]
)
NVML_EVENT_ENDS = counter(
    "agent_nvml_event_process_ends", "Ends of the process that waits for NVML's events, by reason", ["reason"]
)

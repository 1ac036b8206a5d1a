"""The kubelet's socket and files."""

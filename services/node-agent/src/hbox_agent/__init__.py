"""Publishes the device allocations of a node's kubelet."""

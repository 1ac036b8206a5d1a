"""Kubernetes workloads become job events, and back."""

"""Applies decisions to Kubernetes."""

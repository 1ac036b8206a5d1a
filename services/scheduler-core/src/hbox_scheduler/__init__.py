"""Pending jobs and node state become placement plans."""

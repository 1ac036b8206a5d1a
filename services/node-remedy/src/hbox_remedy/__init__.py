"""Executes remedies on its node, as health-monitor decides them: each at most once, and only verbs that the node's settings permit."""

"""Queues, quota and claims: the only arbiter."""

"""Accounts of queues: use over time, its history, budgets, demand and loans."""

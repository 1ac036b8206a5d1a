"""Decides which remedies are executed, and what they consist of. Pure."""

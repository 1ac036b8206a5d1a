"""Decisions: one attempt on the columns, or one session of the policy."""

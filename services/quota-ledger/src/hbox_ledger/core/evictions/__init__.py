"""Evictions: which pods may be evicted for which jobs, what was evicted, and the limit on their number."""

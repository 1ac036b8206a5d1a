"""Victim search of a session: the pods that may be evicted, the gangs that may evict them, and which of them make room for a gang."""

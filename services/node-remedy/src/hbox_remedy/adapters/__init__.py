"""The node's files, processes and commands."""

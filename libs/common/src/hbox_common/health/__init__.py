"""Texts and raw values of a node's hardware, parsed into records. Pure: shared by the agent that reads and the monitor that judges."""

"""The shell: what comes in from the bus and what goes out on it."""

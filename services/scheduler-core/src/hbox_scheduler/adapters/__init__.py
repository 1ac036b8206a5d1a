"""The shell: messages from the bus and to the bus."""

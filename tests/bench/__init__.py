"""Speed and memory, as repeatable commands that print figures with the limit beside them: `make bench`."""

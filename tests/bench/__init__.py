"""Benchmarks of speed and memory. Each is a command that prints figures with their limits: `make bench`."""

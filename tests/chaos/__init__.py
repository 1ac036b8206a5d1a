"""Faults at random moments under a steady load, and an observer outside the platform that checks its guarantees."""

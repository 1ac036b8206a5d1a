"""Faults at random moments under a steady load, and an observer from outside that looks for broken promises."""

"""A record of a scheduler's inputs and decisions, and its replay through another scheduler."""

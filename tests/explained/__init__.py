"""Explanations of pending jobs on random clusters, compared with what the engine does then (`python -m tests.explained`)."""

"""A day of three departments, from published traces, under several policies: in the engine's own time, and through the running platform at time scale."""

from .report import main

__all__ = ["main"]

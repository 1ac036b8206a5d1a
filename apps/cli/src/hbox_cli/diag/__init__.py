"""Collects logs, metrics and objects of a platform into one archive, for a remote diagnosis (`hbox diag`)."""

from .archive import Archive, Collected, Step, collect
from .scrub import Scrub

__all__ = ["Archive", "Collected", "Scrub", "Step", "collect"]

"""What `hbox diag` gathers of a platform into one archive, for whoever has to find out what is wrong with it and is not there."""

from .archive import Archive, Collected, Step, collect
from .scrub import Scrub

__all__ = ["Archive", "Collected", "Scrub", "Step", "collect"]

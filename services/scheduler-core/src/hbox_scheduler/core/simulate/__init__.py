"""The scheduler without services around it: tests, benchmarks and what-if questions."""

from .simulation import Simulation, job, node

__all__ = ["Simulation", "job", "node"]

"""Findings of the checks of a node."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "WARN"
    FAULT = "BAD"


@dataclass(frozen=True, slots=True)
class NodeFinding:
    name: str
    level: Level
    message: str
    fix: str = ""

"""What a remedy does, as data: it is reported by a dry run, and its second half is in the journal before its first half begins."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hbox_common.model.remedy import Outcome


@dataclass(frozen=True, slots=True)
class Command:
    args: tuple[str, ...]
    timeout_s: float = 60.0
    refused_by: tuple[
        str, ...
    ] = ()  #: texts in the output of a command that failed: it changed nothing, and may be tried again

    def __str__(self) -> str:
        return shlex.join(self.args)


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to each process of the node that runs the program."""

    program: str

    def __str__(self) -> str:
        return f"terminate {self.program}"


@dataclass(frozen=True, slots=True)
class Diagnose:
    """A command whose output, not its exit status, is the result (`dcgm.diagnosis`)."""

    command: Command

    def __str__(self) -> str:
        return str(self.command)


Step: TypeAlias = Command | Terminate | Diagnose


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` end at the first that fails. `restore` undoes what the steps prepared; it is executed in any case, also after a restart of the program."""

    steps: tuple[Step, ...] = ()
    restore: tuple[Command, ...] = ()
    reboots: bool = False  #: it is done when the node has booted

    def __str__(self) -> str:
        return "; ".join(map(str, (*self.steps, *self.restore))) or "nothing to do"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a remedy ended, or why it does not begin."""

    outcome: Outcome
    message: str = ""
    holders: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()  #: of a diagnosis


def skipped(message: str) -> Ended:
    return Ended(Outcome.SKIPPED, message)


def refused(message: str, holders: Sequence[str] = ()) -> Ended:
    return Ended(Outcome.REFUSED, message, tuple(holders))


def failed(message: str) -> Ended:
    return Ended(Outcome.FAILED, message)

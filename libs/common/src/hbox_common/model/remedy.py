"""A remedy: something that node-remedy does to the hardware or software of its node, decided by health-monitor; or a diagnosis, which repairs nothing."""

from dataclasses import dataclass
from enum import StrEnum

#: Program name of node-agent's process that waits for NVML's events: it has all cards open, and node-remedy ends it by SIGTERM before it resets one.
NVML_EVENTS = "hbox-nvml-events"


class Verb(StrEnum):
    RESET = "reset"
    REBOOT = "reboot"
    RESTART_FM = "restart-fm"
    LOAD_MODULE = "load-module"
    ACS_OFF = "acs-off"
    RESTART_DEVICE_PLUGIN = "restart-device-plugin"
    DIAGNOSE = "diagnose"  #: DCGM's diagnostics of a card or of all cards, after a repair


#: Verbs that change the node.
REPAIRS = frozenset(Verb) - {Verb.DIAGNOSE}


class Outcome(StrEnum):
    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  #: the node has no program for it
    REFUSED = "refused"  #: nothing was changed: a client holds the card, or the node's settings do not permit the remedy


@dataclass(frozen=True, slots=True)
class Decision:
    """One execution of a verb. It is executed at most once, and not begun after `expires`."""

    incident: str
    entity: str  #: gpu:UUID | rail:HCA | node
    verb: Verb
    attempt: int  #: of the verb for the incident, from 1
    expires: float  #: seconds since the epoch

    @property
    def id(self) -> str:
        """The same for each publication of the decision, also after a restart of health-monitor."""
        return f"{self.incident}.{self.verb}.{self.attempt}"

"""Every reason for which a job may wait, by the name that conditions, messages and metrics use."""

from collections.abc import Mapping
from itertools import chain

from hbox_common.model.explanation import Stage

from .catalogue import cardcodes, gangcodes, jobcodes, nodecodes, plancodes, queuecodes
from .code import Code

_INSUFFICIENT = "Insufficient "  #: before the resource: kube-scheduler's words for a node with too little of it
INSUFFICIENT_RESOURCE = "InsufficientResource"

_STAGES = list(Stage)

#: By stage, in the order in which the platform applies them.
CODES: Mapping[str, Code] = {
    code.name: code
    for code in sorted(
        chain(jobcodes.CODES, queuecodes.CODES, gangcodes.CODES, nodecodes.CODES, cardcodes.CODES, plancodes.CODES),
        key=lambda code: _STAGES.index(code.stage),
    )
}


def code_of(name: str) -> Code | None:
    """The code of this name, in any case; None if there is none."""
    return CODES.get(name) or next((code for code in CODES.values() if code.name.lower() == name.lower()), None)


def code_of_label(label: str) -> Code | None:
    """The code of a label by which nodes are counted, such as `CardsInUse`, `Insufficient cpu` or `ExtenderRefused: busy`."""
    if label.startswith(_INSUFFICIENT):
        return CODES[INSUFFICIENT_RESOURCE]
    return CODES.get(label.partition(":")[0])


def code_of_message(message: str) -> Code | None:
    """The code that a message starts with, as in `QueueClosed: queue ml is not open`; None if it starts with none."""
    name, colon, _ = message.partition(":")
    return CODES.get(name) if colon else None

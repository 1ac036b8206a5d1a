"""Names similar to a misspelled one, and commands that change a job."""

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import TypeVar

from hbox_common.model import Job

#: Alternatives that are tried of one knob, such as values of a label.
MOST_VALUES = 3

#: Names that are compared with a misspelled one, and the similarity from which on one precedes another.
_COMPARED, _SIMILAR = 256, 0.5

#: Letters that are mistaken for digits.
_CONFUSED = str.maketrans("OIL", "011")

N = TypeVar("N", bound=str)


def nearest(wanted: str, names: Sequence[N]) -> list[N]:
    """The first few of the names, those similar to the wanted one before the others."""
    plain = _plain(wanted)
    similar = {name: max(SequenceMatcher(None, plain, part).ratio() for part in _parts(name)) for name in names[:_COMPARED]}
    return sorted(similar, key=lambda name: -max(similar[name], _SIMILAR))[:MOST_VALUES]


def _parts(name: str) -> Iterable[str]:
    """The name and its words: users write models and zones in part."""
    return (_plain(name), *map(_plain, re.split(r"[\s_.-]+", name)))


def _plain(name: str) -> str:
    return name.upper().translate(_CONFUSED)


def patch(job: Job, spec: str) -> str:
    """The command that changes these fields of the spec of the job's PodGroup."""
    return f"kubectl -n {job.namespace} patch podgroup {job.name} --type merge -p '{{\"spec\":{{{spec}}}}}'"


def annotate(job: Job, annotations: str) -> str:
    """The command that writes annotations on the job's PodGroup, or on its pod."""
    return f"kubectl -n {job.namespace} annotate {'podgroup' if job.gang else 'pod'} {job.name} --overwrite {annotations}"

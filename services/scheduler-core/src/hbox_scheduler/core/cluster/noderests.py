"""Codes of node rests (`hbox_common.model.noderest`). Nodes with equal rests share a code, so that a task is checked once for all of them."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from hbox_common.model import KindRest, PodRequest

from .arrays import Bools, Ints
from .task import Task

_Refused: TypeAlias = tuple[tuple[str, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]], ...]

#: Number of codes above which `clear` is due.
_MOST = 4096


class RestCodes:
    """Codes of rests; 0 = no rest."""

    def __init__(self) -> None:
        self._codes: dict[_Refused, int] = {(): 0}
        self._kinds: list[tuple[KindRest, ...]] = [()]

    def code(self, kinds: Iterable[KindRest]) -> int:
        """The code of these rests; times and messages are ignored."""
        kinds = tuple(kinds)
        key = tuple(sorted((one.kind, tuple(sorted(one.amounts.items())), tuple(sorted(one.only.items()))) for one in kinds))
        known = self._codes.get(key)
        if known is None:
            known = self._codes[key] = len(self._kinds)
            self._kinds.append(kinds)
        return known

    @property
    def full(self) -> bool:
        """Whether `clear` is due."""
        return len(self._kinds) > _MOST

    def clear(self) -> None:
        """Forget all codes. The caller has to compute the code of every resting node again."""
        del self._kinds[1:]
        self._codes = {(): 0}

    def matching(self, task: Task, codes: Ints, which: Callable[[KindRest], bool]) -> Bools:
        """`[n]`: whether a rest that `which` selects applies to the task. `codes`: `[n]`."""
        asked = PodRequest(
            task.requests,
            cards=task.cards is not None,
            aligned=task.aligned is not None,
            selected=bool(task.node_selector) or task.affinity is not None,
        )
        found = np.zeros(len(codes), dtype=np.bool_)
        for code in np.unique(codes).tolist():
            if code and any(which(one) and one.concerns(asked) for one in self._kinds[code]):
                found |= codes == code
        return found

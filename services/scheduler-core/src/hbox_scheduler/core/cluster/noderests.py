"""Which nodes take which kinds of pods no longer for a while. Nodes that refuse the same have one code, so that a task is judged once for all of them."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from hbox_common.model import Asked, KindRest

from .arrays import Bools, Ints
from .task import Task

_Refused: TypeAlias = tuple[tuple[str, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]], ...]

#: Codes that are kept before those that no row has are forgotten.
_MOST = 4096


class RestCodes:
    """Codes of what rows refuse; 0: nothing."""

    def __init__(self) -> None:
        self._codes: dict[_Refused, int] = {(): 0}
        self._kinds: list[tuple[KindRest, ...]] = [()]

    def code(self, kinds: Iterable[KindRest]) -> int:
        """Of a node that refuses these."""
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
        """Forget all codes: rows are to be coded anew."""
        del self._kinds[1:]
        self._codes = {(): 0}

    def matching(self, task: Task, codes: Ints, which: Callable[[KindRest], bool]) -> Bools:
        """`[n]`: whether rows with these codes refuse the task by one of these kinds."""
        asked = Asked(
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

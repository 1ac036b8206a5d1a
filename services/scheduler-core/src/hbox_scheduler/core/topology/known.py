"""The tree over the columns' rows, kept from session to session while neither HyperNodes nor nodes change."""

from collections.abc import Sequence

from hbox_common.model import HyperNode

from ..cluster import Columns
from .tree import Tree, tree_of


class KnownTree:
    """The tree of one set of columns; it sets the unit of each of their rows (`Columns.units`)."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._hypernodes: Sequence[HyperNode] = ()
        self._at: tuple[int, int] | None = None
        self._tree: Tree | None = None

    def follow(self, hypernodes: Sequence[HyperNode]) -> None:
        """The fabric from now on; the sequence is not changed afterwards."""
        if hypernodes is not self._hypernodes:
            self._hypernodes, self._at = hypernodes, None

    @property
    def tree(self) -> Tree:
        """As of now."""
        columns = self._columns
        at = columns.described.end, columns.size
        if self._tree is None or self._at != at:
            self._tree, self._at = tree_of(self._hypernodes, columns.row_of, columns.size), at
            columns.units = self._tree.leaves() if self._hypernodes else None
        return self._tree

    def refresh(self) -> None:
        """See to it that the columns know their units."""
        if self._hypernodes or self._columns.units is not None:
            _ = self.tree

"""Which nodes have which images, by name."""

from collections.abc import Iterable, Sequence

import numpy as np

from hbox_common.model import HeldImage

from .arrays import Floats
from .columns import Columns


class HeldImages:
    """False where nothing is known."""

    def __init__(self, images: Iterable[HeldImage] = ()) -> None:
        self._shards: dict[str, Sequence[HeldImage]] = {}
        self._by_name: dict[str, list[HeldImage]] = {}
        self._known: dict[str, tuple[int, Floats | None]] = {}
        self.put("", images)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def put(self, shard: str, images: Iterable[HeldImage]) -> None:
        """All of the images of that shard. Of one name there may be several: a tag is moved."""
        for image in self._shards.pop(shard, ()):
            for name in dict.fromkeys(image.names):
                others = [one for one in self._by_name[name] if one is not image]
                if others:
                    self._by_name[name] = others
                else:
                    del self._by_name[name]
        self._shards[shard] = tuple(images)
        self._known.clear()
        for image in self._shards[shard]:
            for name in dict.fromkeys(image.names):
                self._by_name.setdefault(name, []).append(image)

    def sizes(self, name: str, columns: Columns) -> Floats | None:
        """`[N]` bytes of the image of that name, 0 where a node does not have it; None: no node has. Not to be written to."""
        version = columns.described.end
        found = self._known.get(name)
        if found is None or found[0] != version:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[name] = version, self._sizes(name, columns)
        return found[1]

    def _sizes(self, name: str, columns: Columns) -> Floats | None:
        sizes = np.zeros(columns.size, dtype=np.float64)
        for image in self._by_name.get(name, ()):
            rows = [row for node in image.nodes if (row := columns.row_of.get(node)) is not None]
            sizes[rows] = image.size_bytes
        return sizes if sizes.any() else None


#: Names of which the sizes are kept by node: 40 kB each with 5,000 nodes.
_KEPT = 256

"""Which nodes have which images, kept by what changes, and bounded: of each node the largest images alone, since only these take long to be pulled."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from sys import intern
from typing import TypeAlias

from hbox_common.events import IMAGE_SHARDS, shard_of
from hbox_common.model import HeldImage, NodeName, image_name
from hbox_common.model.bounds import KEY_BYTES, is_plain

#: Of a node, the largest first. The kubelet itself names 50 at most.
MOST_OF_A_NODE = 20
#: Of an image: the kubelet names five, digests first and tags after them.
MOST_NAMES = 5
#: Smaller ones are pulled in no time: below it kube-scheduler's ImageLocality gives nothing.
LEAST_BYTES = 23 * 2**20

_Image: TypeAlias = tuple[tuple[str, ...], int]  #: names, bytes


class ImageTable:
    """Images by shard. `stale`: shards of which something changed since they were read."""

    def __init__(self) -> None:
        self.stale: set[str] = set()
        self._of_node: dict[NodeName, frozenset[_Image]] = {}
        self._shards: dict[str, dict[_Image, dict[NodeName, None]]] = {str(i): {} for i in range(IMAGE_SHARDS)}
        self.republish()

    def republish(self) -> None:
        """Mark all shards stale: the stream lost them."""
        self.stale.update(self._shards)

    def observe(self, node: NodeName, images: Iterable[tuple[Sequence[str], int]]) -> None:
        """The node has these, names and bytes of each, and no others; none: also when it is gone."""
        large = sorted(
            ((_read(tuple(names)), size) for names, size in images if size >= LEAST_BYTES),
            key=lambda image: (-image[1], image[0]),
        )
        now = frozenset([image for image in large if image[0]][:MOST_OF_A_NODE])
        before = self._of_node.get(node, frozenset())
        for image in before - now:
            nodes = self._part(image)[image]
            del nodes[node]
            if not nodes:
                del self._part(image)[image]
        for image in now - before:
            self._part(image).setdefault(image, {})[node] = None
        if now:
            self._of_node[node] = now
        else:
            self._of_node.pop(node, None)

    def read(self, shard: str) -> tuple[HeldImage, ...]:
        """All of one shard, in the order of names; it is not stale then."""
        self.stale.discard(shard)
        found = sorted(self._shards[shard].items())
        return tuple(HeldImage(names, size, tuple(sorted(nodes))) for (names, size), nodes in found)

    def _part(self, image: _Image) -> dict[_Image, dict[NodeName, None]]:
        """The shard of an image that changes."""
        shard = shard_of(image[0][0], IMAGE_SHARDS)
        self.stale.add(shard)
        return self._shards[shard]


@lru_cache(maxsize=8192)
def _read(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names that cannot be passed on are left out."""
    plain = dict.fromkeys(
        intern(image_name(name)) for name in names if is_plain(name, KEY_BYTES) and not name.startswith("<none>")
    )
    return tuple(plain)[:MOST_NAMES]

"""Cards that a device plugin counts by model, under a resource of their own: `nvidia.com/A100`, `nvidia.com/H800`.

NVIDIA's plugin can rename resources, and some platforms name each model. A node does not show which resources are cards: the setting `card_resources` lists
them. Such cards are allocated whole; the kubelet selects them. Queues, quotas and reports count them under the resource's own name.
"""

from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from ..bounds import VALUE_BYTES, is_plain, sanitized
from .cards import Card
from .cardvendor import CardVendor
from .identity import is_resource, short_name
from .vendor import NodeReport

#: Of one setting: far more models than a cluster has.
MAX_RESOURCES = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountedByModel(CardVendor):
    model: str

    def register(self, node: NodeReport) -> tuple[Card, ...]:
        """As many as the kubelet would give out, with ids `<node>-<resource's last part>-<index>`."""
        short = short_name(self.cards)
        return tuple(Card(i, f"{node.name}-{short}-{i}", self.model, 0) for i in range(node.amounts.get(self.cards, 0)))


def parse_card_resources(text: str) -> tuple[CountedByModel, ...]:
    """From `nvidia.com/A100=A100-SXM4-80GB,nvidia.com/H800`: resources, each with its model where that is not the resource's last part. Raises
    InvalidRequest that names the entry."""
    found: dict[str, CountedByModel] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        resource, _, model = (part.strip() for part in entry.partition("="))
        if not is_resource(resource):
            raise InvalidRequest(
                f"{sanitized(entry, 64)!r} is no resource", hint="write DOMAIN/NAME=MODEL, as nvidia.com/A100=A100-SXM4-80GB"
            )
        if not is_plain(model, VALUE_BYTES):
            raise InvalidRequest(f"the model of {resource} is too long, or has control characters")
        if resource in found:
            raise InvalidRequest(f"duplicate entry {resource}")
        found[resource] = CountedByModel(name=resource, kind=resource, cards=resource, model=model or short_name(resource))
    if len(found) > MAX_RESOURCES:
        raise InvalidRequest(f"{len(found)} resources, at most {MAX_RESOURCES} are taken")
    return tuple(found.values())

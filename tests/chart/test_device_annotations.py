"""Whatever annotations device plugins of any maker read on a pod, and whatever lock on a node: the chart's policies name them. Else a tenant writes them and
has the cards of others, or binder may not take the lock."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from hbox_common.model import VENDORS
from hbox_common.model.devices import Card, CardSlice

from ..property.test_every_vendor import KINDS, Kind, amounts
from .rendered import objects


@cache
def policy(name: str) -> str:
    """All expressions of one of the chart's admission policies."""
    [found] = [
        one for one in objects("default") if one["kind"] == "ValidatingAdmissionPolicy" and one["metadata"]["name"] == name
    ]
    spec: dict[str, Any] = found["spec"]
    return "\n".join(one["expression"] for part in ("variables", "validations") for one in spec[part])


def is_kept(name: str) -> bool:
    text = policy("hbox-devices-of-pods")
    ends, starts = re.findall(r"endsWith\('([^']+)'\)", text), re.findall(r"startsWith\('([^']+)'\)", text)
    lists = re.findall(r"k in \[([^\]]+)\]", text)
    names = {one for found in lists for one in re.findall(r"'([^']+)'", found)}
    return name.endswith(tuple(ends)) or name.startswith(tuple(starts)) or name in names


VOLCANO = Kind(
    "volcano-vgpu",
    {},
    {"volcano.sh/node-vgpu-register": "GPU-0,10,40960,NVIDIA-A100,true,hami-core:"},
    amounts(VENDORS.kind("volcano-vgpu"), 1),
)


@pytest.mark.parametrize("kind", [*KINDS, VOLCANO], ids=lambda kind: kind.word)
def test_what_a_plugin_reads_on_a_pod_is_written_by_binder_alone(kind: Kind) -> None:
    cards: dict[int, Card] = {card.index: card for card in kind.cards}
    first = next(iter(cards.values()))
    layout = ((CardSlice(first.index, 100, first.memory_mib),),)
    notes = kind.vendor.annotate(layout, cards, node="n", now=1.0) | kind.vendor.assignment("n", 1.0)
    assert [name for name in notes if not is_kept(name)] == []


@pytest.mark.parametrize(
    "name", ["nvidia.com/use-gputype", "hami.io/gpu-scheduler-policy", "volcano.sh/vgpu-mode", "team.example/note"]
)
def test_what_people_write_is_not_kept_from_them(name: str) -> None:
    assert not is_kept(name)


def test_binder_may_take_the_lock_of_every_plugin() -> None:
    locks = {vendor.node_lock for vendor in VENDORS} - {""}
    assert [lock for lock in sorted(locks) if f"'{lock}'" not in policy("hbox-nodes-of-the-binder")] == []

"""Cards of each maker, and what containers ask of them, for the tests of vendors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hbox_common.model import VENDORS, Card, CardSlice, Vendor
from hbox_common.model.devices import Ask, CardAllocation, DeviceLabel, Fitted, NodeReport, PodDevices, Refused, booked


def kind(word: str) -> Vendor:
    return VENDORS.kind(word)


def registered(
    word: str, annotation: str = "", amounts: Mapping[str, int] | None = None, labels: Mapping[str, str] | None = None
) -> tuple[Card, ...]:
    """Of a node with these amounts, labels, and this value of every annotation by which a plugin may register."""
    vendor = kind(word)
    names = (getattr(vendor, "register_annotation", ""), "metax-tech.com/node-gpu-devices", "enflame.com/gcu-drs-capacity")
    notes = dict.fromkeys(filter(None, names), annotation) if annotation else {}
    cards = vendor.register(NodeReport("n", amounts or {}, labels or {}, notes))
    return tuple(replace(card, kind=word) for card in cards)


def asked(word: str, amounts: Mapping[str, str | float], wishes: Mapping[str, str] | None = None) -> Ask:
    ask = kind(word).ask(amounts, wishes or {})
    assert ask is not None
    return ask


def tried(
    cards: Sequence[Card],
    *asks: Ask,
    used: Mapping[int, CardAllocation] | None = None,
    facts: Mapping[str, str] | None = None,
    wishes: Mapping[str, str] | None = None,
    init: int = 0,
) -> Fitted | Refused:
    pod = PodDevices(
        tuple(replace(ask, container=i) for i, ask in enumerate(asks)),
        containers=len(asks),
        init=init,
        wishes=tuple(sorted((wishes or {}).items())),
    )
    return VENDORS.fit(cards, used or {}, pod, facts or {})


def given(found: Fitted | Refused) -> list[list[int]]:
    assert isinstance(found, Fitted), found
    return [[s.index for s in container] for container in found.layout]


def score(found: Fitted | Refused) -> float:
    assert isinstance(found, Fitted), found
    return found.score


def labels(found: Fitted | Refused) -> dict[DeviceLabel, int]:
    assert isinstance(found, Refused), found
    return dict(found.cards)


def used_by(*slices: CardSlice) -> dict[int, CardAllocation]:
    return booked({}, slices)


# Nodes.


def xpus(count: int = 8) -> tuple[Card, ...]:
    return registered("kunlun", amounts={"kunlunxin.com/xpu": count})


def shared_xpus(count: int = 8) -> tuple[Card, ...]:
    return registered(
        "XPU",
        json.dumps(
            [
                {
                    "id": f"KL-{i}",
                    "index": i,
                    "count": 4,
                    "devmem": 98304,
                    "type": "XPU-P800-OAM",
                    "numa": i // 4,
                    "health": True,
                }
                for i in range(count)
            ]
        ),
    )


def neurons(count: int = 16) -> tuple[Card, ...]:
    return registered("AWSNeuron", amounts={"aws.amazon.com/neuron": count, "aws.amazon.com/neuroncore": 2 * count})


def npus(
    word: str, count: int = 8, *, memory_mib: int = 65_536, slots: int = 4, indices: Sequence[int] = ()
) -> tuple[Card, ...]:
    return registered(
        word,
        json.dumps(
            [
                {
                    "id": f"N-{i}", "index": i, "count": slots, "devmem": memory_mib, "devcore": 20, "type": word, "health": True,
                    "custominfo": {"NetworkID": i // 4},
                }
                for i in indices or range(count)
            ]
        ),
    )  # fmt: skip


def divided_gcus(count: int = 1) -> tuple[Card, ...]:
    devices = [{"index": str(i), "minor": str(i), "capacity": 6} for i in range(count)]
    profiles = {"1g.6gb": "0", "3g.20gb": "1", "6g.40gb": "2"}
    return registered("Enflame", json.dumps({"devices": devices, "profiles": profiles}))


def shared_gcus(count: int = 2, slices: int = 4) -> tuple[Card, ...]:
    return registered("Enflame", amounts={"enflame.com/gcu-count": count, "enflame.com/shared-gcu": count * slices})


def sgpus(*zones: int, qos: str = "") -> tuple[Card, ...]:
    return registered(
        "Metax-SGPU",
        json.dumps(
            [
                {
                    "uuid": f"M-{i}", "model": "MXC500", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536, "healthy": True,
                    "linkZone": zone, "qosPolicy": qos,
                }
                for i, zone in enumerate(zones)
            ]
        ),
    )  # fmt: skip

"""Cards that a device plugin counts by model, under a resource of their own."""

from collections.abc import Iterator

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.devices import NodeReport
from hbox_common.model.devices.bymodel import parse_card_resources
from hbox_common.runtime import Settings
from hbox_common.runtime.settings import load


@pytest.fixture(autouse=True)
def named() -> Iterator[None]:
    before = tuple(VENDORS)
    VENDORS.count_by_model(parse_card_resources("nvidia.com/A100=A100-SXM4-80GB, nvidia.com/H800"))
    yield
    VENDORS.adopt(before)


def test_they_are_cards_of_their_model_taken_whole() -> None:
    cards = VENDORS.cards_of(NodeReport("n1", {"nvidia.com/A100": 2, "nvidia.com/H800": 1, "nvidia.com/gpu": 1}), print)
    assert [(card.index, card.kind, card.model, card.shares) for card in cards] == [
        (0, "NVIDIA", "", 1), (16, "nvidia.com/A100", "A100-SXM4-80GB", 1), (17, "nvidia.com/A100", "A100-SXM4-80GB", 1),
        (32, "nvidia.com/H800", "H800", 1),
    ]  # fmt: skip
    assert len({card.uuid for card in cards}) == 4
    request = VENDORS.kind("nvidia.com/A100").request({"nvidia.com/A100": "2"}, ())
    assert request is not None
    assert (request.count, request.whole) == (2, True)
    assert VENDORS.asked({"nvidia.com/A100": 2, "nvidia.com/gpu": 1, "cpu": 5}) == 3


def test_told_again_the_last_word_counts() -> None:
    VENDORS.count_by_model(parse_card_resources("nvidia.com/L20"))
    assert VENDORS.asked({"nvidia.com/A100": 2, "nvidia.com/L20": 1}) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("A100", "'A100' is no resource"),
        ("nvidia.com/A 100", "is no resource"),
        ("nvidia/A100", "is no resource"),
        ("nvidia.com/A100,nvidia.com/A100=x", "duplicate entry"),
        (f"nvidia.com/A100={'x' * 2000}", "too long"),
        (",".join(f"a.b/c{i}" for i in range(101)), "101 resources"),
    ],
)
def test_what_is_no_table_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        parse_card_resources(text)


def test_a_resource_that_a_vendor_has_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"nvidia\.com/gpu counts cards of any model"):
        VENDORS.count_by_model(parse_card_resources("nvidia.com/gpu=A100"))


def test_a_wrong_setting_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBOX_CARD_RESOURCES", "A100")
    with pytest.raises(InvalidRequest, match="HBOX_CARD_RESOURCES = 'A100'"):
        load(Settings, "binder")

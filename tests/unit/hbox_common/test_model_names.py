"""Matching of names with card models."""

import pytest

from hbox_common.model import Card, any_names_model, model_of, model_resource, names_model
from hbox_common.model.devices import GPU, VENDORS, Ask, Offer

HAMI, LABEL = "NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"


@pytest.mark.parametrize(
    "name", ["A100", "a100", "NVIDIA-A100", "nvidia a100 sxm4", "A100-SXM4-80GB", HAMI, LABEL, "A100  SXM4"]
)
@pytest.mark.parametrize("model", [HAMI, LABEL, HAMI.lower()])
def test_part_of_a_model_name_matches_the_model(name: str, model: str) -> None:
    assert names_model(name, model)


@pytest.mark.parametrize("name", ["H100", "A100-PCIE", "A100SXM4", "80GB-A100"])
def test_other_name_does_not_match_the_model(name: str) -> None:
    assert not any_names_model([name, "T4"], HAMI)


def test_no_name_matches_a_card_without_a_model() -> None:
    assert not names_model("A100", "")
    assert not names_model("", "")


@pytest.mark.parametrize("name", ["", "-", " - -", "--"])
def test_dashes_and_blanks_alone_match_no_model(name: str) -> None:
    assert not names_model(name, HAMI)


@pytest.mark.parametrize("wish", ["nvidia.com/use-gputype", "nvidia.com/nouse-gputype"])
def test_model_name_printed_by_queues_matches_a_card_of_a_hami_node(wish: str) -> None:
    printed = model_of(model_resource(GPU, HAMI))
    card = Card(index=0, uuid="GPU-a", model=HAMI, memory_mib=81920, kind="NVIDIA")
    found = VENDORS.kind("NVIDIA").fit(Offer((card,), {}, wishes={wish: printed}), Ask("NVIDIA", 1))
    assert isinstance(found, tuple) == (wish == "nvidia.com/use-gputype")

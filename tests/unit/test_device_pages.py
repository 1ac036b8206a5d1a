"""The pages of docs/devices: every example is a pod that HBox takes, and every name that a vendor reads stands on its page."""

from pathlib import Path

import msgspec
import pytest
import yaml

from hbox_common import kube
from hbox_common.model import VENDORS, Vendor
from hbox_jobs.adapters.objects import PodReader

PAGES = Path(__file__).parents[2] / "docs/devices"

#: Of several kinds that have names of one pattern: the word in the names, and how the page writes it.
WORD = "<W>"

MAKERS = list(VENDORS)


def examples() -> list[tuple[str, str]]:
    return [
        (page.stem, block.partition("```")[0])
        for page in sorted(PAGES.glob("*.md"))
        for block in page.read_text().split("```yaml\n")[1:]
    ]


@pytest.mark.parametrize(("page", "text"), [pytest.param(page, text, id=page) for page, text in examples()])
def test_each_example_is_a_pod_that_is_taken(page: str, text: str) -> None:
    document = yaml.safe_load(text)
    document["metadata"] |= {"namespace": "default", "uid": page, "resourceVersion": "1"}
    pod = msgspec.convert(document, kube.Pod, strict=False)
    view = PodReader().view(pod)
    assert not view.shape.problem
    assert view.shape.cards is not None
    assert view.shape.cards.count >= 1


@pytest.mark.parametrize("vendor", MAKERS, ids=lambda vendor: vendor.name)
def test_all_names_that_a_vendor_reads_and_writes_stand_on_its_page(vendor: Vendor) -> None:
    names = [vendor.cards, *vendor.parts, *vendor.wishes, *vendor.facts, vendor.models_annotation, vendor.allocated_annotation]
    names.append(getattr(vendor, "register_annotation", ""))
    pages = {page.stem: page.read_text() for page in PAGES.glob("*.md")}
    own = [
        stem
        for stem, text in pages.items()
        if stem not in ("README", "migrating-from-hami") and _names(text, vendor, vendor.cards)
    ]
    assert len(own) == 1
    assert not [name for name in names if name and not _names(pages[own[0]], vendor, name)]


def _names(page: str, vendor: Vendor, name: str) -> bool:
    """Also by pattern, and the second of two as `hami.io/x-devices-to-allocate`, `-allocated`."""
    stem = name.removesuffix("-allocated")
    for known in (name, name.replace(vendor.kind, WORD)):
        if f"`{known}`" in page or f"`{known}: " in page:
            return True
    return stem != name and any(
        f"`{known}-to-allocate`, `-allocated`" in page for known in (stem, stem.replace(vendor.kind, WORD))
    )


def test_every_page_is_in_the_index() -> None:
    index = (PAGES / "README.md").read_text()
    assert [page.name for page in PAGES.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index] == []

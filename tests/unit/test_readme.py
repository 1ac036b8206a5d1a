"""README.md: its length, and its links."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def anchors(text: str) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_links_of_readme_resolve() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 40
    for link in links:
        name, _, anchor = link.partition("#")
        target = ROOT / name if name else ROOT / "README.md"
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link

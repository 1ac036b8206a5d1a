"""Fixtures of the whole platform."""

from collections.abc import Iterator

import pytest

from .platform_world import Up, up


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One platform for the tests of a module that only look at it or use it."""
    with up(tmp_path_factory.mktemp("platform") / "state", "--policy", "fgd") as running:
        yield running

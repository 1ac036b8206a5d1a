"""Fixtures of the whole platform."""

from collections.abc import AsyncIterator, Iterator

import pytest

from hbox_common.kube import KubeClient

from .platform_world import Up, up


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One platform for the tests of a module that only look at it or use it."""
    with up(tmp_path_factory.mktemp("platform") / "state", "--policy", "fgd") as running:
        yield running


@pytest.fixture
async def client(platform: Up) -> AsyncIterator[KubeClient]:
    """As an administrator of the platform's cluster; `platform` is the module's own where it has one."""
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        yield client

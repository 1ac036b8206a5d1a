"""Everything here needs a real control plane: it is marked `real`, and runs by `make test-real` alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hbox_cli.platform.assets import ControlPlane

from .control_plane import control_plane


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def real_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver, kube-controller-manager and kwok, with RBAC, TLS and an audit log, shared by all tests here."""
    with control_plane(tmp_path_factory.mktemp("real")) as plane:
        yield plane

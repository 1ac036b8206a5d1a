"""What queues, levels and quotas promise, on a real control plane: its own admission gives pods their priorities, its controllers and eviction API take
them away. The stories are those of tests/e2e, where `hbox simulate cycle` foretells what happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.kube import KubeClient

from ..e2e import test_e2e_class_quotas as class_quotas
from ..e2e import test_e2e_guarantees as guarantees
from ..e2e import test_e2e_levels as levels
from ..e2e import test_e2e_offline_work as offline_work
from ..e2e.platform_world import Up, hbox, up
from .control_plane import control_plane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With a controller for evictions and kwok for kubelets."""
    with control_plane(tmp_path_factory.mktemp("shares")) as plane:
        yield plane


@pytest.fixture(scope="module")
def platform(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--kubeconfig", str(plane.kubeconfig)) as running:
        guarantees.prepare(running, plane.kubeconfig)
        yield running


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as connected:
        yield connected


test_guarantees_are_lent_to_those_who_can_leave = (
    guarantees.test_a_queue_that_gives_nothing_back_leaves_what_others_are_guaranteed
)
test_no_tenant_keeps_what_it_borrowed = guarantees.test_no_tenant_keeps_what_it_borrowed
test_nobody_takes_from_listed_classes = guarantees.test_nobody_takes_from_listed_classes_within_what_their_queue_deserves
test_a_gang_across_the_line_gives_what_it_can_spare_or_goes_whole = (
    guarantees.test_a_gang_across_the_line_gives_what_it_can_spare_or_goes_whole
)
test_a_class_that_the_queue_does_not_take_evicts_nobody = guarantees.test_a_class_that_the_queue_does_not_take_evicts_nobody


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[ControlPlane, Up]]:
    """A cluster of a story's own, which has the levels' PriorityClasses as the chart's job makes them."""
    with control_plane(tmp_path / "cluster") as plane:
        made = hbox("definitions", "apply", "--levels", "--kubeconfig", str(plane.kubeconfig))
        assert made.returncode == 0, made.stderr
        with up(tmp_path / "state", "--kubeconfig", str(plane.kubeconfig), env={"HBOX_NOTICE_S": "2"}) as running:
            yield plane, running


@pytest.mark.parametrize("of", [levels, class_quotas, offline_work], ids=lambda one: one.__name__.rpartition("test_e2e_")[2])
async def test_it_is_so(of, own: tuple[ControlPlane, Up], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    plane, running = own
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        await of.story(client, running, tmp_path)

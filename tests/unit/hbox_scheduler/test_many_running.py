"""The cost of a session does not depend on the number of running jobs: the session iterates none of them."""

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Any

from hbox_common.model import PodUid
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node


class Walked(AssertionError):
    pass


class Names(Set[Any]):
    """Keys that support lookup and fail on iteration."""

    def __init__(self, of: dict[Any, Any]) -> None:
        self._of = of

    def __contains__(self, key: object) -> bool:
        return key in self._of

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[Any]:
        raise Walked

    def __rsub__(self, other: Any) -> Any:
        raise Walked  # the set operations of dictionary views iterate


class Looked(dict[Any, Any]):
    """Supports lookup and fails on iteration."""

    def __iter__(self) -> Iterator[Any]:
        raise Walked

    def keys(self) -> Any:
        return Names(self)

    def values(self) -> Any:
        raise Walked

    def items(self) -> Any:
        raise Walked


def test_session_does_not_iterate_running_jobs() -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    simulation.put_nodes(node(f"n{i}", cards=8) for i in range(8))
    simulation.submit([job(f"runs-{i}") for i in range(50)])
    simulation.run()

    def whole_life(name: str) -> None:
        simulation.submit([replace(job(name, cards=1, created_at=1e6), namespace="other")])
        simulation.run()
        assert PodUid(f"{name}-0") in simulation.claims
        simulation.finish([PodUid(f"{name}-0")])
        simulation.run()

    whole_life("first")
    scheduler: Any = simulation.scheduler
    running, bookings = scheduler._sessions._running, scheduler.bookings
    for holder, field in (
        (running, "_pods_of"), (running, "_job_of"), (running._gangs, "_counted"), (running._gangs, "_expected"), (bookings, "_of"),
    ):  # fmt: skip
        kept = getattr(holder, field)
        assert len(kept) >= 50
        setattr(holder, field, Looked(kept))
    whole_life("second")

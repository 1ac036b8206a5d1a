"""Which pods of a gang are beyond the number that its owner declares."""

import random
from dataclasses import replace

import pytest

from hbox_common.model import NodeName, PodUid
from hbox_jobs.core.extras import Extras

from .job_world import pod


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_changes_reports_each_pod_that_changes_sides(seed: int) -> None:
    chance, extras, room = random.Random(seed), Extras(), 3
    known: dict[PodUid, bool] = {}
    for step in range(200):
        uid = PodUid(f"uid-p{chance.randrange(8)}")
        if chance.random() < 0.3:
            reported = extras.gone(uid)
            known.pop(uid, None)
        else:
            room = chance.randrange(6) if chance.random() < 0.2 else room
            one = pod(
                uid.removeprefix("uid-"), created_at=float(step), node=NodeName("n") if chance.random() < 0.3 else NodeName("")
            )
            reported = extras.put(one, "gang", "worker", room)
            known[uid] = extras.has(uid)
        for other in reported:
            known[other] = extras.has(other)
        extras.validate()
        assert known == {each: extras.has(each) for each in known}, "each change is reported"
        assert sum(not extra for extra in known.values()) == min(len(known), extras.room("gang", "worker", room)), (
            "no position is empty"
        )


@pytest.mark.parametrize("seed", range(20))
def test_a_restart_makes_the_same_pods_members(seed: int) -> None:
    """Whatever has a node by then, and in any order of the list."""
    chance = random.Random(seed)
    pods = [pod(f"p{number}", created_at=float(chance.randrange(3))) for number in range(6)]
    before, after = Extras(), Extras()
    for one in pods:
        before.put(one, "gang", "worker", 3)
    for one in chance.sample(pods, len(pods)):
        after.put(replace(one, node=NodeName("n" if chance.random() < 0.5 else "")), "gang", "worker", 3)
    assert [after.has(one.uid) for one in pods] == [before.has(one.uid) for one in pods]


def test_pod_that_is_bound_later_keeps_its_side() -> None:
    extras, first, more = Extras(), pod("first", created_at=0.0), pod("more", created_at=1.0)
    for one in (first, more):
        extras.put(one, "gang", "worker", 1)
    assert extras.put(replace(more, node=NodeName("n")), "gang", "worker", 1) == []
    assert extras.has(more.uid)


def test_roles_and_gangs_are_counted_apart() -> None:
    extras = Extras()
    for gang in ("one", "other"):
        for role in ("master", "worker"):
            extras.put(pod(f"{gang}-{role}"), gang, role, 1)
    assert not any(extras.has(PodUid(f"uid-{gang}-{role}")) for gang in ("one", "other") for role in ("master", "worker"))


def test_flood_of_pods_beyond_the_number_costs_each_pod_little() -> None:
    """10,000 pods that name one owner: comparing each with all others would take minutes."""
    extras = Extras()
    for n in range(10_000):
        extras.put(pod(f"p{n}", created_at=float(-n)), "gang", "worker", 4)
    assert sum(extras.has(PodUid(f"uid-p{n}")) for n in range(10_000)) == 9_996

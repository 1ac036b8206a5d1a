"""Claims of classes without a provisioner keep their pod to the nodes that reach a volume which fits."""

from typing import Any

import pytest

from hbox_common.model import Match, MatchOperator, NodeTerm, Selector, VolumeDemand, VolumeSupply
from hbox_jobs.core.staticvolumes import Reach
from hbox_jobs.core.volumes import Binding, ClaimView, Volumes, VolumeUse

ONCE = "ReadWriteOnce"
ASKED = VolumeDemand(size=10, access_modes=(ONCE,))
DATA = [VolumeUse("data")]
NONE_FITS = 'no node has available persistent volumes of StorageClass local to bind persistentvolumeclaim "data"'


def on(*nodes: str) -> Reach:
    return ((NodeTerm((Match("host", MatchOperator.IN, nodes),)),),)


def a_supply(name: str, **fields: Any) -> VolumeSupply:
    given: dict[str, Any] = {"storage_class": "local", "size": 10, "access_modes": frozenset({ONCE, "ReadOnlyMany"})} | fields
    return VolumeSupply(name, **given)


def a_claim(**fields: Any) -> ClaimView:
    given: dict[str, Any] = {"storage_class": "local", "uid": "u1", "demand": ASKED}
    return ClaimView(**(given | fields))


@pytest.fixture
def volumes() -> Volumes:
    volumes = Volumes()
    volumes.storage_class("local", Binding.STATIC)
    volumes.claim("ml/data", a_claim())
    return volumes


def needs(volumes: Volumes, *claims: str) -> tuple[Reach, str]:
    return volumes.needs("ml", "p", "u", [VolumeUse(c) for c in claims or ("data",)])


def test_pod_is_kept_to_nodes_with_a_volume_that_fits_and_follows_the_volumes(volumes: Volumes) -> None:
    assert needs(volumes) == ((), NONE_FITS)
    assert volumes.volume("a", on("n1"), a_supply("a")) == ["ml/data"]
    assert needs(volumes) == (on("n1"), "")
    assert volumes.unbound_claims("ml", DATA) == ("data",)
    assert volumes.unselected("ml", DATA) == []
    volumes.volume("b", on("n2"), a_supply("b"))
    assert needs(volumes) == (on("n1", "n2"), "")
    assert volumes.volume("a", on("n1"), a_supply("a", claim="ml/other")) == ["ml/data"]
    assert needs(volumes) == (on("n2"), "")
    assert volumes.volume("b", (), gone=True) == ["ml/data"]
    assert needs(volumes) == ((), NONE_FITS)


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param({"size": 9}, id="too small"),
        pytest.param({"access_modes": frozenset({"ReadOnlyMany"})}, id="another access mode"),
        pytest.param({"volume_mode": "Block"}, id="another volume mode"),
        pytest.param({"storage_class": "other"}, id="another class"),
        pytest.param({"claim": "ml/other"}, id="reserved for another claim"),
        pytest.param({"claim": "ml/data", "claim_uid": "u0"}, id="reserved for an earlier claim of this name"),
    ],
)
def test_volume_that_does_not_fit_is_not_counted(volumes: Volumes, unfit: dict[str, Any]) -> None:
    volumes.volume("a", on("n1"), a_supply("a", **unfit))
    assert needs(volumes) == ((), NONE_FITS)


def test_selector_of_a_claim_chooses_among_the_volumes(volumes: Volumes) -> None:
    fast = Selector((Match("disk", MatchOperator.IN, ("nvme",)),))
    volumes.claim("ml/data", a_claim(demand=VolumeDemand(10, access_modes=(ONCE,), selector=fast)))
    volumes.volume("a", on("n1"), a_supply("a", labels=(("disk", "sata"),)))
    assert needs(volumes) == ((), NONE_FITS)
    volumes.volume("b", on("n2"), a_supply("b", labels=(("disk", "nvme"),)))
    assert needs(volumes) == (on("n2"), "")


@pytest.mark.parametrize("uid", ["", "u1"])
def test_claim_takes_the_volume_that_is_reserved_for_it_and_no_other(volumes: Volumes, uid: str) -> None:
    volumes.volume("a", on("n1"), a_supply("a"))
    assert volumes.volume("b", on("n2"), a_supply("b", claim="ml/data", claim_uid=uid)) == ["ml/data"]
    assert needs(volumes) == (on("n2"), "")


def test_each_claim_of_a_pod_needs_a_volume_of_its_own_on_the_node(volumes: Volumes) -> None:
    volumes.claim("ml/more", a_claim(uid="u2", demand=VolumeDemand(20, access_modes=(ONCE,))))
    volumes.volume("a", on("n1"), a_supply("a", size=20))
    volumes.volume("b", on("n2"), a_supply("b", size=20))
    none = 'no node has available persistent volumes of StorageClass local to bind persistentvolumeclaim "data", "more"'
    assert needs(volumes, "data", "more", "data") == ((), none)
    volumes.volume("c", on("n2"), a_supply("c"))
    assert needs(volumes, "data", "more") == (on("n2"), "")
    assert needs(volumes, "data") == (on("n1", "n2"), "")


def test_all_entries_of_where_a_volume_is_reached_from_count(volumes: Volumes) -> None:
    zone, host = Match("zone", MatchOperator.IN, ("a",)), Match("host", MatchOperator.IN, ("n1",))
    volumes.volume("a", ((NodeTerm((zone,)),), (NodeTerm((host,)), NodeTerm())), a_supply("a"))
    assert needs(volumes) == (((NodeTerm((zone, host)),),), "")
    volumes.volume("a", ((NodeTerm(),),), a_supply("a"))
    assert needs(volumes) == ((), NONE_FITS)
    volumes.volume("a", (), a_supply("a"))
    assert needs(volumes) == ((), "")


def test_change_of_a_volume_names_only_claims_that_still_wait(volumes: Volumes) -> None:
    volumes.claim("ml/bound", a_claim(volume="v", bound=True, demand=None))
    volumes.claim("ml/now", a_claim(storage_class="now"))
    volumes.storage_class("now", Binding.IMMEDIATE)
    assert volumes.volume("a", on("n1"), a_supply("a")) == ["ml/data"]
    assert volumes.volume("a", on("n1"), a_supply("a")) == []
    assert volumes.volume("b", on("n1"), a_supply("b", storage_class="now")) == []

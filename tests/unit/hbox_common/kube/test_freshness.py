"""When a copy counts as proven, and connections to those that are gone without a word."""

import socket

import pytest

from hbox_common.kube.deadpeers import USER_TIMEOUT_MS, detect_dead_peers
from hbox_common.kube.freshness import OLD_S, Freshness, Proof, not_before, older


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("9", "10", False), ("10", "9", True), ("10", "10", True), ("a", "a", True), ("b", "a", False), ("", "1", False)],
)
def test_resource_versions_are_numbers_and_what_is_none_is_equal_or_not(one: str, other: str, expected: bool) -> None:
    assert not_before(one, other) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("9", "10", True), ("10", "9", False), ("10", "10", False), ("a", "b", False), ("", "1", False)],
)
def test_of_two_resource_versions_one_is_older_only_where_that_is_sure(one: str, other: str, expected: bool) -> None:
    assert older(one, other) is expected


def test_a_watch_proves_its_copy_as_of_the_question_and_not_as_of_its_answer() -> None:
    proof = Proof()
    proof.listed(10.0)
    proof.sampled("20", at=50.0, watched_from="10")
    assert not proof.reached("19")
    assert proof.proven_at == 10.0
    assert proof.reached("20")
    assert proof.proven_at == 50.0


def test_a_sample_proves_once_and_a_watch_that_is_opened_anew_needs_its_own() -> None:
    proof = Proof()
    proof.sampled("20", at=50.0, watched_from="10")
    assert proof.reached("25")
    assert not proof.reached("26"), "how old that is nobody knows"
    proof.sampled("30", at=60.0, watched_from="10")
    proof.forget()
    assert not proof.reached("30")
    assert proof.proven_at == 50.0


def test_no_watch_proves_anything_where_the_store_was_set_back() -> None:
    proof = Proof()
    proof.sampled("20", at=50.0, watched_from="30")
    assert not proof.reached("30")
    assert proof.waiting, "its end makes the copy be listed anew"
    proof.sampled("31", at=60.0, watched_from="30")
    assert proof.reached("31")


def test_what_is_proven_does_not_become_older() -> None:
    """A list that was begun before the last sample, and took long."""
    proof = Proof()
    proof.sampled("20", at=50.0, watched_from="10")
    proof.reached("20")
    proof.listed(40.0)
    assert proof.proven_at == 50.0


def test_a_copy_that_never_was_is_old() -> None:
    assert Freshness("", float("inf")).old
    assert Freshness("9", OLD_S + 0.1).old
    assert not Freshness("9", OLD_S).old


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no TCP_USER_TIMEOUT")
def test_connections_end_when_their_peer_is_gone() -> None:
    with socket.socket() as opened:
        detect_dead_peers(opened)
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == USER_TIMEOUT_MS

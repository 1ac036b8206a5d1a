"""Patterns from outside take time in proportion to the text, whatever is written, and mean what they mean to Volcano."""

from time import process_time

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.kube import objects
from hbox_common.kube.fabric import resolve
from hbox_common.patterns import MAX_LENGTH, compiled


def hypernode(name: str, pattern: str) -> objects.HyperNode:
    match = objects.RegexMatch(pattern=pattern)
    members = (objects.HyperNodeMember(type="Node", selector=objects.MemberSelector(regex_match=match)),)
    return objects.HyperNode(
        metadata=objects.Metadata(name=name, uid=name), spec=objects.HyperNodeSpec(tier=1, members=members)
    )  # fmt: skip


@pytest.mark.parametrize("pattern", ["^([a-z0-9.-]+)+X$", "(a|a)*b", "(.*)*(.*)*(.*)*y", "(x+x+)+y"])
def test_no_pattern_takes_more_than_a_moment(pattern: str) -> None:
    names: dict[str, dict[str, str]] = {f"{'a' * 60}-{number}.zone.example.com": {} for number in range(5000)}
    begin = process_time()
    resolved = resolve([hypernode("poison", pattern), hypernode("fine", "-1[.]zone")], names)
    assert process_time() - begin < 2.0
    assert resolved.wrong == []
    assert [len(one.nodes) for one in resolved.hypernodes][1:] == [1]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "missing )"),
        ("(?=a)a", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("((a{1000}){1000}){1000}", "is no regular expression"),
        ("a" * (MAX_LENGTH + 1), f"is a pattern of {MAX_LENGTH + 1} characters"),
        ("\ud800", "is no regular expression"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said_of_its_hypernode_alone(pattern: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=r"\w"):
        compiled(pattern)
    resolved = resolve([hypernode("wrong", pattern), hypernode("fine", "^n[0-1]$")], {"n0": {}, "n1": {}, "m": {}})
    [wrong] = resolved.wrong
    assert (wrong.place, wrong.field) == (0, "spec.members[0].selector.regexMatch.pattern")
    assert said in wrong.message
    assert resolved.hypernodes[1].nodes == ("n0", "n1")


@pytest.mark.parametrize(
    ("pattern", "found"), [("n1", True), ("^n1$", True), ("(?i)N1", True), (r"\pL\d", True), ("^1", False)]
)
def test_a_pattern_is_searched_for_anywhere_as_volcano_does(pattern: str, found: bool) -> None:
    assert (compiled(pattern).search("n1") is not None) is found

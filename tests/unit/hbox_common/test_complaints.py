"""What a service says of many things that are wrong at once."""

from hbox_common.runtime import complaints


def test_of_many_kinds_that_cannot_be_read_two_are_said_in_full_and_the_others_by_name() -> None:
    wrong = dict.fromkeys(("pods", "podgroups", "namespaces", "storageclasses"), "forbidden")
    assert complaints(wrong) == "pods: forbidden; podgroups: forbidden; and namespaces, storageclasses likewise or otherwise"
    assert complaints({"pods": "forbidden"}) == "pods: forbidden"
    assert complaints({}) == ""

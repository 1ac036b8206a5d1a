"""Which changes of a pod compute its job anew."""

from dataclasses import fields, replace

import pytest

from hbox_jobs.core.views import NOT_CONTENT, PodStatus, PodView, content

from .job_world import pod


def test_fields_without_influence_on_placement_exist() -> None:
    assert {each.name for each in fields(PodView)} >= NOT_CONTENT


@pytest.mark.parametrize(
    "change",
    [{"condition_message": "0/4 nodes are available"}, {"resource_version": "9"}, {"kubelet_at": 5.0}, {"ready": True}],
)
def test_what_hbox_and_kubelets_write_about_a_waiting_pod_is_no_change_of_it(change: dict[str, object]) -> None:
    assert content(replace(pod("a"), **change)) == content(pod("a"))  # type: ignore[arg-type]


def test_a_change_of_status_is_one() -> None:
    assert content(replace(pod("a"), status=PodStatus.RUNNING)) != content(pod("a"))

"""Labels of a namespace: the scheduler and the queue of the pods that are created in it."""

from __future__ import annotations

from typing import Any

import pytest

from hbox_admission.core import NO_DEFAULTS, NamespaceDefaults, Outcome, Rules, defaults_of, mutate

from .test_mutation import NVIDIA, container, pod

HBOX = Rules(("hbox", "volcano"))
LABELLED = NamespaceDefaults("hbox", "research")
QUEUE = "scheduling.volcano.sh/queue-name"


def defaults(**labels: str) -> NamespaceDefaults:
    return defaults_of({f"hbox.io/{key}": value for key, value in labels.items()}, HBOX.schedulers)


def test_labels_name_the_scheduler_and_the_queue() -> None:
    assert defaults(scheduler="true", queue="research") == LABELLED
    assert defaults(scheduler="volcano") == NamespaceDefaults("volcano")
    assert defaults(queue="research") == NamespaceDefaults("", "research")
    assert defaults(scheduler="false") == NO_DEFAULTS
    assert defaults_of({"team": "a"}, HBOX.schedulers) is NO_DEFAULTS


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"scheduler": "yes"}, "label hbox.io/scheduler of the namespace is 'yes' and has no effect: write \"true\" or hbox or volcano"),
        ({"queue": "Not_A_Name"}, "label hbox.io/queue of the namespace is 'Not_A_Name', and no object of Kubernetes can be called so; it has no effect"),
    ],
)  # fmt: skip
def test_a_label_without_effect_is_a_warning_for_the_creator_of_a_pod(labels: dict[str, str], message: str) -> None:
    found = defaults(**labels)
    assert (found.scheduler, found.queue, found.problems) == ("", "", (message,))
    assert mutate(pod(container()), HBOX, found).warnings == (message,)
    assert mutate(pod(container(), schedulerName="other"), HBOX, found).warnings == ()


def test_pods_without_devices_of_a_labelled_namespace_become_hboxs() -> None:
    found = mutate(pod(container()), HBOX, LABELLED)
    assert found.pod["spec"]["schedulerName"] == "hbox"
    assert found.pod["metadata"]["annotations"] == {QUEUE: "research"}
    again = mutate(found.pod, HBOX, LABELLED)
    assert (again.outcome, again.patch) == (Outcome.UNCHANGED, ())


def test_the_label_outranks_the_switch_for_default_schedulers_pods() -> None:
    rules = Rules(force_overwrite_default_scheduler=False)
    assert mutate(pod(container(limits=NVIDIA)), rules, LABELLED).pod["spec"]["schedulerName"] == "hbox"
    assert mutate(pod(container(limits=NVIDIA)), rules, NamespaceDefaults("", "research")).outcome is Outcome.FOREIGN


@pytest.mark.parametrize("scheduler", ["hami-scheduler", "kai-scheduler"])
def test_pods_of_another_scheduler_stay_as_they_are(scheduler: str) -> None:
    assert mutate(pod(container(), schedulerName=scheduler), HBOX, LABELLED).outcome is Outcome.FOREIGN


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {QUEUE: "own"}},
        {"labels": {QUEUE: "own"}},
        {"annotations": {"scheduling.k8s.io/group-name": "gang"}},
        {"annotations": {"scheduling.volcano.sh/group-name": "gang"}},
    ],
)
def test_a_queue_of_the_pod_or_its_podgroup_outranks_the_label(metadata: dict[str, dict[str, str]]) -> None:
    body = pod(container(limits=NVIDIA))
    body["metadata"] |= metadata
    found = mutate(body, HBOX, LABELLED)
    assert found.pod["metadata"].get("annotations", {}).get(QUEUE) != "research"
    assert found.pod["spec"]["schedulerName"] == "hbox"


def test_the_queue_alone_is_for_pods_that_are_hboxs() -> None:
    """Pods of the default scheduler have no queue."""
    only = NamespaceDefaults("", "research")
    assert mutate(pod(container()), HBOX, only).outcome is Outcome.UNCHANGED
    for ours in (pod(container(limits=NVIDIA)), pod(container(), schedulerName="hbox")):
        assert mutate(ours, HBOX, only).pod["metadata"]["annotations"] == {QUEUE: "research"}


def test_a_privileged_pod_with_devices_stays_as_it_is_and_one_without_is_placed() -> None:
    privileged: dict[str, Any] = {"securityContext": {"privileged": True}}
    assert mutate(pod(container(limits=NVIDIA, **privileged)), HBOX, LABELLED).outcome is Outcome.PRIVILEGED
    assert mutate(pod(container(**privileged)), HBOX, LABELLED).pod["spec"]["schedulerName"] == "hbox"

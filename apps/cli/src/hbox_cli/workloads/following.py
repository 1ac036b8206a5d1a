"""Waiting for a state of a job, and printing logs of its pods, from Kubernetes objects."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hbox_common.errors import HBoxError, InvalidRequest, NotFound, Unavailable

from ..access.cluster import ClusterApi, Object
from ..exits import Faulty
from ..output import notify
from .targets import ENDED, Target, phase_of

if TYPE_CHECKING:
    from ..context import Context

POLL_S = 0.5
UNRANKED = 1 << 30
_LOG_HINT = "logs come from the kubelet of the pod's node; nodes of `hbox up --api assets` have none"
BOUND, RUNNING, DONE = "bound", "running", "done"
STATES = (BOUND, RUNNING, DONE)


def members_needed(target: Target) -> int:
    """Number of pods that make the job start."""
    spec = target.root.get("spec") or {}
    group = (target.group or {}).get("spec") or {}
    notes = target.root["metadata"].get("annotations") or {}
    for value in (
        notes.get("scheduling.volcano.sh/group-min-member"),
        group.get("minMember"),
        spec.get("minMember"),
        spec.get("parallelism"),
    ):
        with suppress(ValueError):
            if value is not None and int(value) > 0:
                return int(value)
    return max(1, len(target.pods))


def has_failed(target: Target) -> bool:
    conditions = (target.root.get("status") or {}).get("conditions") or ()
    if any(one.get("type") == "Failed" and one.get("status") == "True" for one in conditions):
        return True
    return not has_conditions(target) and any(phase_of(pod) == "Failed" for pod in target.pods)


def has_conditions(target: Target) -> bool:
    """Whether its controller reports the end."""
    return target.kind.kind not in ("Pod", "PodGroup")


def has_ended(target: Target) -> bool:
    conditions = (target.root.get("status") or {}).get("conditions") or ()
    if has_conditions(target):
        return any(
            one.get("type") in ("Complete", "Succeeded", "Completed", "Failed") and one.get("status") == "True"
            for one in conditions
        )
    return bool(target.pods) and all(phase_of(pod) in ENDED for pod in target.pods)


def reached(target: Target, state: str) -> bool:
    """An ended job has been bound and has run."""
    if has_ended(target):
        return True
    needed = members_needed(target)
    match state:
        case "bound":
            return sum(1 for pod in target.pods if pod["spec"].get("nodeName")) >= needed
        case "running":
            return sum(1 for pod in target.pods if phase_of(pod) in ("Running", "Succeeded")) >= needed
        case _:
            return False


def wait_for(read: Callable[[], Target], state: str, *, timeout_s: float | None, was: Target | None = None) -> Target:
    """The job in this state. Raises TimeoutError with what it is in, Faulty if it failed before, NotFound if it is deleted before it ended."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    last: Target | None = was
    while True:
        try:
            last = read()
        except NotFound:
            if last is None:
                raise
            raise NotFound(f"{last.title} was deleted while hbox waited for it", hint="hbox history") from None
        if has_failed(last) and state != DONE:
            raise Faulty(f"{last.title} failed", hint=f"hbox logs {last.namespace}/{last.name}")
        if reached(last, state):
            return last
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"{last.title} is not {state} after {timeout_s:g} s: {state_text(last)}")
        time.sleep(POLL_S)


def state_text(target: Target) -> str:
    """`2 of 4 pods on nodes, 1 run`, with the reason of the first pod that waits; of an ended job its pods by their end."""
    if has_ended(target):
        ends = Counter(phase_of(pod).lower() for pod in target.pods)
        return ", ".join(f"{count} pods {phase}" for phase, count in sorted(ends.items())) or "its pods are gone"
    running = sum(1 for pod in target.pods if phase_of(pod) == "Running")
    text = f"{len(target.bound)} of {members_needed(target)} pods on nodes, {running} run"
    for pod in target.pods:
        for condition in (pod.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False" and condition.get("message"):
                return f"{text}; {condition['message']}"
    return text


def target_reader(ctx: "Context", api: ClusterApi, job: str, namespace: str | None) -> Callable[[], Target]:
    """Reads the job of this name anew at each call."""
    from ..access import source_of  # noqa: PLC0415  the access packages are imported by commands that use them
    from .targets import target_of  # noqa: PLC0415

    return lambda: target_of(api, job, namespace=namespace, listed=lambda name: source_of(ctx).job(name))


def rank_of(pod: Object) -> int:
    """Index of the pod in its Job, or in its gang by HBox; pods without one come last."""
    notes = pod["metadata"].get("annotations") or {}
    for name in ("batch.kubernetes.io/job-completion-index", "hbox.io/rank"):
        with suppress(KeyError, ValueError):
            return int(notes[name])
    return UNRANKED


def print_logs(api: ClusterApi, pods: Sequence[Object], params: Mapping[str, str]) -> None:
    """Of one pod as they are; of several with the pod's name before each line, all at the same time with `follow`."""
    if len(pods) == 1:
        _print(api, pods[0], params, prefix="")
        return
    if params.get("follow") != "true":
        for pod in pods:
            _print(api, pod, params, prefix=f"{pod['metadata']['name']}: ")
        return
    failures: list[HBoxError] = []

    def one(pod: Object) -> None:
        try:
            _print(ClusterApi(api.access), pod, params, prefix=f"{pod['metadata']['name']}: ")
        except HBoxError as e:
            failures.append(e)

    threads = [threading.Thread(target=one, args=(pod,), daemon=True) for pod in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _print(api: ClusterApi, pod: Object, params: Mapping[str, str], *, prefix: str) -> None:
    metadata: Mapping[str, Any] = pod["metadata"]
    try:
        for line in api.log_lines(str(metadata["namespace"]), str(metadata["name"]), params):
            text = line.decode(errors="replace")
            sys.stdout.write(f"{prefix}{text}" if text.endswith("\n") else f"{prefix}{text}\n")
            sys.stdout.flush()
    except NotFound as e:
        raise NotFound(f"pod {metadata['name']} has no log: {e.message}", hint=_LOG_HINT) from e
    except Unavailable as e:
        raise Unavailable(f"the log of pod {metadata['name']} cannot be read: {e.message}", hint=_LOG_HINT) from e


def follow(api: ClusterApi, read: Callable[[], Target]) -> Target:
    """Waits until the job runs, prints the log of its first pod as it grows, and returns the ended job. Raises Faulty if it failed."""
    target = wait_for(read, BOUND, timeout_s=None)
    notify(f"{target.title}: {state_text(target)}")
    target = wait_for(read, RUNNING, timeout_s=None)
    first = min((pod for pod in target.pods), key=rank_of, default=None)
    if first is None:
        raise InvalidRequest(f"{target.title} has no pod")
    print_logs(api, [first], {"follow": "true"})
    target = wait_for(read, DONE, timeout_s=None)
    if has_failed(target):
        raise Faulty(f"{target.title} failed", hint=f"hbox show {target.namespace}/{target.name}")
    return target

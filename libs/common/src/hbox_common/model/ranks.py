"""The rank of a pod in its job, from the labels and annotations of common controllers.

The first row that matches the pod determines its index; the last one is for pods of unknown controllers (all are labels; those marked are annotations too):

controller                        role                                   group of its own                          index
--------------------------------  -------------------------------------  ----------------------------------------  ---------------------------------------------
Kubeflow Training Operator        training.kubeflow.org/replica-type                                               training.kubeflow.org/replica-index
Volcano Job (annotations)         volcano.sh/task-spec                                                             volcano.sh/task-index
LeaderWorkerSet                                                          leaderworkerset.sigs.k8s.io/group-index   leaderworkerset.sigs.k8s.io/worker-index
JobSet                            jobset.sigs.k8s.io/replicatedjob-name  jobset.sigs.k8s.io/job-index              batch.kubernetes.io/job-completion-index
Indexed Job (annotation)                                                                                           batch.kubernetes.io/job-completion-index
StatefulSet                                                                                                        apps.kubernetes.io/pod-index
KubeRay                           ray.io/node-type and ray.io/group                                                the number at the end of the name
any other                                                                                                          the number at the end of the name

Leading roles (master, chief, launcher, head, leader, driver) come before the others, which are ordered by name; groups of one role follow each other. Within a
group the index determines the rank, so that a replacement pod gets its predecessor's rank, and an additional one the next. If indexes repeat or are missing,
pods are ordered by index and name instead. Labels are untrusted: an index that is not a number from 0 to a million is ignored.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from .ids import PodUid

#: An index of this or more is none.
MOST = 1_000_000

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
TASK_SPEC, TASK_INDEX = "volcano.sh/task-spec", "volcano.sh/task-index"

#: Label of the role, label of the group, label of the index.
_CONTROLLERS = (
    ("training.kubeflow.org/replica-type", "", "training.kubeflow.org/replica-index"),
    (TASK_SPEC, "", TASK_INDEX),
    ("", "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"),
    ("jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index", COMPLETION_INDEX),
    ("", "", "apps.kubernetes.io/pod-index"),
)
_RAY_TYPE, _RAY_GROUP = "ray.io/node-type", "ray.io/group"

_LEADS = frozenset({"master", "chief", "launcher", "head", "leader", "driver"})
_NUMBER = re.compile(r"[0-9]{1,7}")
_AT_THE_END = re.compile(r"(?:^|[^0-9])([0-9]{1,7})$")
_DIGITS = re.compile(r"([0-9]+)")


class RankKey(NamedTuple):
    """Sorts pods of one job by rank; those equal in all but `name` dispute an index."""

    follows: bool  #: its role does not lead
    role: str
    group: int
    ordinal: int  #: MOST where it has none
    name: tuple[str | int, ...]  #: as `natural` has it


def natural(text: str) -> tuple[str | int, ...]:
    """A key by which `n2` comes before `n10`: words and numbers in turn, beginning with a word."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(text[:253])))


def rank_key(name: str, role: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> RankKey:
    """Of one pod. `role`: what it is in a Volcano Job, where that is known."""
    for role_label, group_label, index_label in _CONTROLLERS:
        written = labels.get(index_label, annotations.get(index_label))
        if written is not None and (index := _index(written)) < MOST:
            group = _index(labels.get(group_label, "0")) if group_label else 0
            return _key(labels.get(role_label, role) if role_label else role, group, index, name)
    if _RAY_TYPE in labels:
        role = "head" if labels[_RAY_TYPE] == "head" else labels.get(_RAY_GROUP, role)
    found = _AT_THE_END.search(name)
    return _key(role or labels.get(TASK_SPEC, ""), 0, _index(found[1]) if found else MOST, name)


def ranks(keys: Mapping[PodUid, RankKey]) -> dict[PodUid, int]:
    """Of the pods of one job, each one's rank, from 0 on. All are different."""
    found: dict[PodUid, int] = {}
    start = 0
    ordered = sorted(keys, key=lambda uid: (keys[uid], uid))
    for part in _parts(ordered, keys):
        indexes = [keys[uid].ordinal for uid in part]
        plain = len(set(indexes)) == len(indexes) and indexes[-1] < MOST
        found.update((uid, start + (keys[uid].ordinal if plain else place)) for place, uid in enumerate(part))
        start += indexes[-1] + 1 if plain else len(part)
    return found


def _parts(ordered: Iterable[PodUid], keys: Mapping[PodUid, RankKey]) -> list[list[PodUid]]:
    """Those of one role and group together."""
    parts: dict[tuple[bool, str, int], list[PodUid]] = {}
    for uid in ordered:
        parts.setdefault(keys[uid][:3], []).append(uid)
    return list(parts.values())


def _key(role: str, group: int, index: int, name: str) -> RankKey:
    role = role.lower()
    return RankKey(role not in _LEADS, role, group, index, natural(name))


@lru_cache(maxsize=65_536)
def _index(written: str) -> int:
    return min(int(written), MOST) if _NUMBER.fullmatch(written) else MOST

"""Tests of pairs of nodes by nccl-tests: which nodes are tested with which, what runs, and what the results say about nodes, leaf switches and rails. Pure.

    round 1    neighbours below one leaf switch
    round 2    other neighbours, so that a node next to a slow one is measured with another one
    round 3..  nodes below different leaf switches, as far as there are such; other ones in each round

In rounds 1 and 2, nodes that have no new partner below their leaf are paired with such nodes of other leaves. Only nodes with the same hardware are paired
and compared (`Hardware`).

A node is as fast as its best pair (`bandwidth.judge_pairs`). If most nodes of a leaf are slow and no other leaf has slow ones, the leaf is named in their
place; if only pairs across leaves are slow, the links above the leaves. A run with `rail` uses one adapter of each node alone: nodes that are slow in it, and
not in others, have a slow rail. `retests` are further pairs, of nodes in doubt with nodes that are well.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hbox_common.health.nccl import Pair, parse_nccl
from hbox_health.core.judge.bandwidth import FLOOR, Pairs, judge_pairs

#: Labels of what a run creates.
RUN, ROUND = "hbox.io/nccl-run", "hbox.io/nccl-round"
#: Annotation of a pod: the other node of its pair.
PEER = "hbox.io/nccl-peer"
PORT = 29500


@dataclass(frozen=True, slots=True)
class PairTest:
    round: int
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """What nodes have to have in common to be compared: the model of their cards, the resource that counts them, and how many there are."""

    model: str
    resource: str
    cards: int

    def __str__(self) -> str:
        return f"{self.cards} x {self.model}"


@dataclass(frozen=True, slots=True)
class Run:
    """`rail`: the only adapter that each pod uses; "": all."""

    name: str
    namespace: str
    image: str
    command: tuple[str, ...]
    priority_class: str
    rail: str = ""


@dataclass(frozen=True, slots=True)
class Conclusion:
    pairs: Pairs
    slow: tuple[str, ...]  #: nodes that are slow by themselves
    leaves: tuple[str, ...]  #: whose nodes are slow together
    uplinks: bool  #: pairs across leaves are slow, and no node is
    retests: tuple[PairTest, ...]


def by_hardware(pairs: Sequence[Pair], hardware: Mapping[str, Hardware]) -> dict[str, list[Pair]]:
    """Pairs to compare with each other, by the hardware of their nodes ("": unknown); a pair of two kinds is compared with such pairs only."""
    found: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        kinds = {str(hardware[node]) if node in hardware else "" for node in (pair.one, pair.other)}
        found[" / ".join(sorted(kinds))].append(pair)
    return dict(sorted(found.items()))


def plan(leaf_of: Mapping[str, str], rounds: int, hardware: Mapping[str, Hardware] | None = None) -> list[PairTest]:
    """Pairs of the nodes of `leaf_of`, by round; a node is in at most one pair of a round. `hardware` of each node; None: of all the same."""
    groups: dict[Hardware | None, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in sorted(leaf_of, key=lambda name: (leaf_of[name], name)):
        groups[None if hardware is None else hardware[name]][leaf_of[name]].append(name)
    return [
        PairTest(number, one, other)
        for number in range(1, rounds + 1)
        for leaves in groups.values()
        for one, other in _round(list(leaves.values()), number)
    ]


def _round(leaves: list[list[str]], number: int) -> list[tuple[str, str]]:
    if number > 2:
        return _across(leaves, number)
    pairs: list[tuple[str, str]] = []
    alone: list[list[str]] = []
    for nodes in leaves:
        rest = list(nodes)
        if len(nodes) > 2 and number == 2:  # the node that round 1 left out has a partner
            rest = [*nodes[1:], nodes[0]]
        if len(nodes) == 2 and number == 2:  # round 1 had their only pair
            alone.append(rest)
            continue
        pairs += zip(rest[::2], rest[1::2], strict=False)
        alone.append(rest[-1:] if len(rest) % 2 else [])
    return pairs + _across([nodes for nodes in alone if nodes], number)


def _across(leaves: list[list[str]], number: int) -> list[tuple[str, str]]:
    """As many pairs of nodes of different leaves as there can be, and the rest within the largest leaf.

    Each node is paired with the one that follows it by half of the list, so both are below one leaf only if that leaf has more than half of the nodes. The
    leaves meet as in a round-robin tournament, and the nodes of each leaf rotate, so that rounds differ.
    """
    if len(leaves) == 1:
        low, high = leaves[0][: len(leaves[0]) // 2], leaves[0][len(leaves[0]) // 2 :]
        return [(one, high[(place + number - 1) % len(high)]) for place, one in enumerate(low)]
    if sum(map(len, leaves)) % 2:  # one node has no partner
        largest = [place for place, nodes in enumerate(leaves) if len(nodes) == max(map(len, leaves))]
        chosen = largest[number % len(largest)]
        without = number // len(largest) % len(leaves[chosen])
        leaves = [
            [node for step, node in enumerate(nodes) if (place, step) != (chosen, without)]
            for place, nodes in enumerate(leaves)
        ]
    leaves = [nodes for nodes in leaves if nodes]
    shift = number % max(len(leaves) - 1, 1)
    ring = [*leaves[:1], *leaves[1 + shift :], *leaves[1 : 1 + shift]]
    first = (len(ring) + 1) // 2
    names = [
        nodes[(step + number * place) % len(nodes)]
        for place, nodes in enumerate([*ring[:first], *reversed(ring[first:])])
        for step in range(len(nodes))
    ]
    return list(zip(names[: len(names) // 2], names[len(names) // 2 :], strict=True))


def conclude(pairs: Sequence[Pair], leaf_of: Mapping[str, str]) -> Conclusion:
    judged = judge_pairs(pairs)
    measured = {node for pair in pairs if pair.ok and pair.busbw > 0 for node in (pair.one, pair.other)}
    of_leaf: dict[str, set[str]] = defaultdict(set)
    for node in measured:
        of_leaf[leaf_of.get(node, "")].add(node)
    slow = set(judged.slow)
    sick = [leaf for leaf in {leaf_of.get(node, "") for node in slow} if leaf]
    whole = len(sick) == 1 and len(of_leaf) > 1 and len(of_leaf[sick[0]]) > 2 and len(slow) > len(of_leaf[sick[0]]) / 2
    leaves = tuple(sick) if whole else ()
    own = () if whole else judged.slow
    doubtful = [] if whole else [*judged.slow, *judged.borderline, *judged.unmeasured]
    return Conclusion(
        judged, own, leaves, uplinks=not slow and _crossing_is_slow(pairs, leaf_of), retests=_retests(pairs, leaf_of, doubtful)
    )


def _crossing_is_slow(pairs: Sequence[Pair], leaf_of: Mapping[str, str]) -> bool:
    within: list[float] = []
    across: list[float] = []
    for pair in pairs:
        if pair.ok:
            (within if leaf_of.get(pair.one) == leaf_of.get(pair.other) else across).append(pair.busbw)
    return bool(within) and len(across) > 1 and median(across) < FLOOR * median(within)


def _retests(pairs: Sequence[Pair], leaf_of: Mapping[str, str], doubtful: Sequence[str]) -> tuple[PairTest, ...]:
    """Each node in doubt with a node that is well, that it was not tested with, and that is in no other pair of the round; below its leaf if there is one."""
    known = {frozenset((pair.one, pair.other)) for pair in pairs}
    nodes = sorted({node for pair in pairs for node in (pair.one, pair.other)} - set(doubtful))
    number = max((pair.round for pair in pairs), default=0) + 1
    tests: list[PairTest] = []
    for node in doubtful:
        taken = {test.other for test in tests}
        free = [one for one in nodes if one not in taken and frozenset((one, node)) not in known]
        if free:
            tests.append(PairTest(number, node, min(free, key=lambda one: (leaf_of.get(one) != leaf_of.get(node), one))))
    return tuple(tests)


def manifests(run: Run, tests: Sequence[PairTest], hardware: Mapping[str, Hardware]) -> list[dict[str, Any]]:
    """A headless Service, and for each pair a gang of two pods of low priority, pinned to their nodes, each with
    all cards of its node (`hardware`).

    The pod of rank 0 writes what nccl-tests prints to its termination message, as the command has it (`| tee /dev/termination-log`), so that reading results
    takes no right to read logs.
    """
    labels = {RUN: run.name}
    metadata = {"name": run.name, "namespace": run.namespace, "labels": labels}
    out: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True},
        }
    ]
    for place, test in enumerate(tests):
        name = f"{run.name}-{test.round}-{place}"
        own = labels | {ROUND: str(test.round)}
        out.append(
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": run.namespace, "labels": own},
                "spec": {"minMember": 2, "priorityClassName": run.priority_class},
            }
        )
        out += [_pod(run, name, own, rank, test, hardware) for rank in (0, 1)]
    return out


def _pod(  # noqa: PLR0917
    run: Run, group: str, labels: Mapping[str, str], rank: int, test: PairTest, hardware: Mapping[str, Hardware]
) -> dict[str, Any]:
    node, peer = (test.one, test.other) if rank == 0 else (test.other, test.one)
    env = {"NODE_RANK": str(rank), "NNODES": "2", "MASTER_ADDR": f"{group}-0.{run.name}", "MASTER_PORT": str(PORT)}
    env |= {"NCCL_IB_HCA": f"={run.rail}"} if run.rail else {}
    amounts = {hardware[node].resource: str(hardware[node].cards)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{group}-{rank}",
            "namespace": run.namespace,
            "labels": dict(labels),
            "annotations": {"scheduling.k8s.io/group-name": group, PEER: peer, "hbox.io/on-sick-hardware": "restart"},
        },
        "spec": {
            "schedulerName": "hbox",
            "priorityClassName": run.priority_class,
            "restartPolicy": "Never",
            "hostname": f"{group}-{rank}",
            "subdomain": run.name,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "nccl",
                    "image": run.image,
                    "command": list(run.command),
                    "env": [{"name": key, "value": value} for key, value in env.items()],
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        },
    }


def results(pods: Sequence[Mapping[str, Any]]) -> tuple[list[Pair], int]:
    """Results of the pods of rank 0 that have ended, and how many have not. A run without an average, or with wrong values, is not ok."""
    pairs, waiting = [], 0
    for pod in pods:
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if not metadata["name"].endswith("-0"):
            continue
        if status.get("phase") not in ("Succeeded", "Failed"):
            waiting += 1
            continue
        states = [one.get("state", {}).get("terminated") or {} for one in status.get("containerStatuses") or ()]
        run = parse_nccl(str(next((one.get("message") for one in states if one.get("message")), "")))
        busbw = max(run["busbw_at"].values(), default=0.0)
        ok = status["phase"] == "Succeeded" and not run["failed"] and not run["wrong"] and busbw > 0
        node = str(spec.get("nodeName") or spec["nodeSelector"]["kubernetes.io/hostname"])
        pairs.append(Pair(int(metadata["labels"][ROUND]), node, str(metadata["annotations"][PEER]), busbw, ok))
    return sorted(pairs, key=lambda pair: (pair.round, pair.one)), waiting

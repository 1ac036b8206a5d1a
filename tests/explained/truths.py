"""Statements of explanations by code, compared with nodes, claims and rules. Each returns whether the statement is true."""

from collections.abc import Callable, Mapping, Sequence

from hbox_common.model import Job, NodeState
from hbox_common.model.explanation import Explanation

from .world import World


def number(found: Explanation, name: str) -> float:
    value = found.facts[name]
    assert isinstance(value, int | float), (name, value)
    return value


def words(found: Explanation, name: str) -> Sequence[str]:
    value = found.facts[name]
    assert isinstance(value, Sequence), (name, value)
    return [value] if isinstance(value, str) else value


def most(found: Explanation, states: Sequence[NodeState], amount: Callable[[NodeState], float]) -> bool:
    """Whether the largest amount of all nodes, or of as many as the statement is about, is as stated."""
    least = sum(1 for state in states if amount(state) <= number(found, "largest"))
    return least >= number(found, "among") if "among" in found.facts else least == len(states)


def nodes_without(found: Explanation, states: Sequence[NodeState], lacks: Callable[[NodeState], bool]) -> bool:
    """Whether all nodes, or as many as the statement is about, lack it."""
    without = sum(map(lacks, states))
    return without >= number(found, "among") if "among" in found.facts else without == len(states)


def job_of(world: World, found: Explanation) -> Job:
    entry = world.simulation.scheduler.reports.entry(found.job)
    assert entry is not None
    return entry.job


def selector(world: World, found: Explanation) -> bool:
    labels = words(found, "labels") if "labels" in found.facts else [f"{found.facts['key']}={found.facts['value']}"]
    wanted = dict(one.split("=") for one in labels)
    states = list(world.nodes.values())
    return nodes_without(found, states, lambda state: any(state.labels.get(key) != value for key, value in wanted.items()))


def model(world: World, found: Explanation) -> bool:
    wanted = ", ".join(words(found, "model"))
    return nodes_without(found, list(world.nodes.values()), lambda state: wanted not in {card.model for card in state.cards})


def resource(world: World, found: Explanation) -> bool:
    name = str(found.facts["resource"])
    key, unit = {"cpu": ("cpu", 1000), "MiB of memory": ("memory", 1 << 20)}.get(name, (name, 1))
    return most(found, list(world.nodes.values()), lambda state: state.allocatable.get(key, 0) / unit)


def taints(world: World, found: Explanation) -> bool:
    tolerated = all(task.tolerations for task in job_of(world, found).tasks)
    tainted = [state for state in world.nodes.values() if state.taints]
    return bool(tainted) and not tolerated and "team=x" in str(found.facts["detail"])


def free_cards(world: World) -> int:
    """Cards without a pod on nodes and cards in service."""
    held = {(claim.node, one.card) for claim in world.simulation.claims.values() for one in claim.slices}
    free = 0
    for state in world.nodes.values():
        fault = world.faults.get(state.name)
        if state.ready and not state.unschedulable and (fault is None or fault.healthy):
            sound = [card for card in state.cards if fault is None or card.id not in fault.cards]
            free += sum((state.name, card.id) not in held for card in sound)
    return free


def in_use(world: World, found: Explanation) -> bool:
    free, held = number(found, "free"), sum(int(one.split("(")[1][:-1]) for one in words(found, "queues"))
    return number(found, "total") > free and free <= free_cards(world) and held > 0


def spread(world: World, found: Explanation) -> bool:
    return number(found, "largest") < number(found, "cards") <= number(found, "free") <= free_cards(world)


def out_of_service(world: World, found: Explanation) -> bool:
    """Whether each named node is out of service, or has cards that are, for the stated reason, and enough are named."""
    for text in words(found, "nodes"):
        name, why = text.rstrip(")").split(" (")
        state, fault = world.nodes[name], world.faults.get(name)
        true = {
            "not ready": not state.ready,
            "cordoned": state.unschedulable,
            "cards unhealthy": fault is not None and bool(fault.cards),
            "XidError": fault is not None and not fault.healthy,
        }
        if not true[why]:
            return False
    return 1 <= number(found, "short") <= number(found, "count") == len(words(found, "nodes"))


def queue_limit(world: World, found: Explanation) -> bool:
    """Whether a queue on the job's path has the stated limit."""
    path = (job_of(world, found).queue, "top")
    limits = {units for name in path if name in world.queues for units in world.queues[name].capability.values()}
    return not found.have or next(iter(found.have.values())) in limits | {sum(limits)}


def quota(world: World, found: Explanation) -> bool:
    limits = [*(one.limits for one in world.card_quotas), *(one.hard for one in world.class_quotas)]
    return any(units in found.have.values() for one in limits for units in one.values())


TRUTH: Mapping[str, Callable[[World, Explanation], bool]] = {
    "NodeSelectorMismatch": selector,
    "CardTypeMismatch": model,
    "NodeInsufficientDevice": lambda world, found: most(found, list(world.nodes.values()), lambda state: len(state.cards)),
    "ResourceTooLarge": resource,
    "UntoleratedTaint": taints,
    "CardsInUse": in_use,
    "CardsSpread": spread,
    "NodesOutOfService": out_of_service,
    "QueueLimitTooSmall": queue_limit,
    "ResourceQuotaTooSmall": quota,
    "GangPartlyFits": lambda _, found: number(found, "fit") < number(found, "pods"),
    "GangTooLarge": lambda _, found: number(found, "most") < number(found, "pods"),
    "GangKeepsApart": lambda _, found: number(found, "most") < number(found, "pods"),
}

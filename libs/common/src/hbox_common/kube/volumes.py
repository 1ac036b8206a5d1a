"""What the volume controller, provisioners and schedulers write on claims; and which nodes reach a volume."""

from collections.abc import Mapping, Sequence

from .objects import PersistentVolume, Requirement

#: Written by the volume controller when claim and volume name each other.
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
#: The node for which a provisioner makes the volume: written by a scheduler, removed by a provisioner that cannot make it there.
SELECTED_NODE = "volume.kubernetes.io/selected-node"


def reaches(volume: PersistentVolume, node: str, labels: Mapping[str, str]) -> bool:
    """Whether the node of this name and with these labels satisfies the node affinity of the volume. An empty term matches nothing."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    fields = {"metadata.name": node}
    return any(
        bool(term.match_expressions or term.match_fields)
        and _all_hold(term.match_expressions, labels)
        and _all_hold(term.match_fields, fields)
        for term in affinity.required.node_selector_terms
    )


def _all_hold(requirements: Sequence[Requirement], labels: Mapping[str, str]) -> bool:
    return all(_holds(one, labels.get(one.key)) for one in requirements)


def _holds(one: Requirement, value: str | None) -> bool:
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                number, bound = int(value or ""), int(one.values[0])
            except (ValueError, IndexError):
                return False
            return number > bound if one.operator == "Gt" else number < bound
    return False

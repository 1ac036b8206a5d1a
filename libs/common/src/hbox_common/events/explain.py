"""The requests for explanations of jobs, in JSON: scheduler-core answers those about pending jobs at `explain`, those about placements at `decisions`."""

from pydantic import BaseModel, ConfigDict

from hbox_common.model import JobId, NodeName
from hbox_common.model.decision import Decision
from hbox_common.model.explanation import Explanation
from hbox_common.model.shards import ONE_SHARD


def endpoint_of(name: str, shard: str) -> str:
    """Name of an endpoint of a shard's scheduler: `explain`, or `explain-SHARD` if there are several shards."""
    return name if shard in ("", ONE_SHARD) else f"{name}-{shard}"


class _ExplainModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class ExplainRequest(_ExplainModel):
    """A job by its id. `changes`: search the smallest changes that help too. `node`: list the rules that this node fails; "" = of no node."""

    job: JobId
    changes: bool = True
    node: NodeName = NodeName("")


class NodeRules(_ExplainModel):
    """Labels of all rules that a node fails for a pod of the job, in the order in which reasons are given; none: it has room."""

    node: NodeName
    failed: tuple[str, ...]


class ExplainAnswer(_ExplainModel):
    """`explanation`: none for a job that is unknown here or waits for nothing. `node`: only if requested and known."""

    explanation: Explanation | None = None
    node: NodeRules | None = None


class DecisionsRequest(_ExplainModel):
    """A job by its id."""

    job: JobId


class DecisionsAnswer(_ExplainModel):
    """The decisions that gave the job places, oldest first, of those that this process took and still keeps. `since`: when it began, in seconds since the
    epoch."""

    since: float
    decisions: tuple[Decision, ...]

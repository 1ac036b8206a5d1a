"""The request for an explanation of a pending job, in JSON: scheduler-core answers it at its endpoint `explain`."""

from pydantic import BaseModel, ConfigDict

from hbox_common.model import JobId, NodeName
from hbox_common.model.explanation import Explanation
from hbox_common.model.shards import ONE_SHARD

_EXPLAIN = "explain"


def explain_endpoint(shard: str) -> str:
    """Name of the endpoint of a shard's scheduler: `explain`, or `explain-SHARD` if there are several shards."""
    return _EXPLAIN if shard in ("", ONE_SHARD) else f"{_EXPLAIN}-{shard}"


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

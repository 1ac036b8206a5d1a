"""What may be asked of scheduler-core about cards: apart from the other questions (`api`), since this one needs nothing of the scheduler to be read."""

from pydantic import BaseModel, ConfigDict

from hbox_common.model import JobId, NodeName


class _CardsModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class CardsRequest(_CardsModel):
    """A job by its id."""

    job: JobId


class NearNode(_CardsModel):
    """A node that does not take the pod. `labels`: how many of its `cards` of the kind asked for have each label, 0 where it is the node as a whole;
    `fitting`: cards in whose way nothing is by themselves; `container`: which finds too little, init containers counted first."""

    node: NodeName
    cards: int
    fitting: int
    labels: dict[str, int]
    container: int = 0
    said: str = ""  #: the labels as HAMi writes them


class PodCards(_CardsModel):
    """What the cards say to pods of one shape. `nodes`: that their other wishes allow; `fitting`: of them, those whose cards take one; `cards`: of the others,
    `labels` by card; `whole`: nodes that fail as a whole; `best`: the nearest."""

    pods: tuple[str, ...]
    nodes: int
    fitting: int
    cards: int
    labels: dict[str, int]
    whole: dict[str, int] = {}
    best: tuple[NearNode, ...] = ()
    said: str = ""  #: in one line


class CardsAnswer(_CardsModel):
    """Of each shape of the job's pods that cards are in the way of; none where they are not."""

    tasks: tuple[PodCards, ...]

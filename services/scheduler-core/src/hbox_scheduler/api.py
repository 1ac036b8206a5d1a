"""What may be asked of scheduler-core, in JSON: endpoints of the micro service `hbox-scheduler-core`. Names stay; fields may be added."""

from collections.abc import Awaitable, Callable, Sequence

from pydantic import BaseModel, ConfigDict

from hbox_common.bus import Endpoint
from hbox_common.events.explain import DecisionsAnswer, DecisionsRequest, ExplainAnswer, ExplainRequest, endpoint_of
from hbox_common.model import JobId, NodeName, QueueName
from hbox_common.model.consolidation import Mode
from hbox_common.model.decision import Decision

from .cardanswer import CardsAnswer, CardsRequest, PodCards
from .core.cluster.moves import IN_PREVIEW
from .core.explain.cards import CardReasons
from .core.reports import Defragmentation, Proposal

#: Names of pods in one answer; a gang may have thousands.
MOST_PODS = 100


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DefragmentationRequest(_Model):
    """No parameters."""


class MovedPod(_Model):
    """A pod that would move. `lost_s`: seconds of work, without those to start again."""

    pod: str  #: namespace/name
    queue: QueueName
    node: NodeName
    to: NodeName
    cards: int
    lost_s: float


class Proposed(_Model):
    """The moves that would make room for one job. Times in seconds, amounts in cards. `refused`: why they are not made; "" = they are."""

    job: JobId
    name: str  #: namespace/name
    queue: QueueName
    pays: bool
    refused: str
    cards_gained: float
    gain_s: float
    card_seconds_gained: float
    card_seconds_lost: float
    pods_restarted: int
    moves: tuple[MovedPod, ...]


class DefragmentationAnswer(_Model):
    """How fragmented idle cards are, and what would be moved for those who wait, each as if it were the only one. `left_out`: jobs that wait and were not
    looked at; `unknown_pods`: that run since before this process, which does not know where else they may be."""

    mode: Mode
    cards: int
    idle_cards: float
    fragment_cards: float
    largest_gangs: dict[str, int]  #: whole cards of a pod -> pods that would start together
    proposals: tuple[Proposed, ...]
    left_out: int
    unknown_pods: int


def answer_of(found: Defragmentation) -> DefragmentationAnswer:
    """As it is sent."""
    measured = found.fragmentation
    return DefragmentationAnswer(
        mode=found.mode,
        cards=measured.cards,
        idle_cards=measured.idle,
        fragment_cards=measured.fragments,
        largest_gangs={str(cards): pods for cards, pods in measured.largest.items()},
        proposals=tuple(_proposed(one, found.mode) for one in found.proposals),
        left_out=found.left_out,
        unknown_pods=found.unknown_pods,
    )


def _proposed(one: Proposal, mode: Mode) -> Proposed:
    terms, refused = one.found.terms, one.found.refused
    if refused == IN_PREVIEW:
        refused = {Mode.ON: "", Mode.OFF: "which pays, but the policy makes no moves"}.get(mode, refused)
    return Proposed(
        job=one.job.id,
        name=f"{one.job.namespace}/{one.job.name}",
        queue=one.job.queue,
        pays=terms.pays,
        refused=refused,
        cards_gained=terms.cards_gained,
        gain_s=terms.gain_s,
        card_seconds_gained=terms.card_seconds_gained,
        card_seconds_lost=terms.card_seconds_lost,
        pods_restarted=terms.pods_restarted,
        moves=tuple(
            MovedPod(
                pod=f"{move.namespace}/{move.pod}",
                queue=move.queue,
                node=move.node,
                to=move.to,
                cards=move.cards,
                lost_s=move.lost_s,
            )
            for move in one.found.moves
        ),
    )


class Api:
    """Answers from the scheduler's recorded decisions, the moves that it would make, and new searches."""

    def __init__(
        self,
        decisions: Callable[[JobId], list[Decision]],
        defragmentation: Callable[[], Awaitable[DefragmentationAnswer]],
        cards: Callable[[JobId], Sequence[tuple[Sequence[str], CardReasons]]],
        *,
        explain: Callable[[ExplainRequest], ExplainAnswer],
        since: float,
        shard: str = "",
    ) -> None:
        self._decisions, self._defragmentation, self._cards, self._since = decisions, defragmentation, cards, since
        self._explain, self._shard = explain, shard

    def endpoints(self) -> list[Endpoint]:
        about = "Why a job has its places: scores of the recent decisions, and who came second"
        defrag = "How fragmented idle cards are, and what would be moved for those who wait"
        cards = "What the cards of all nodes say to the pods of a job that waits"
        explain = "Why a job waits: outcome, code, facts, nodes by code, and the smallest changes that start it"
        return [
            Endpoint(endpoint_of("cards", self._shard), cards, CardsRequest, CardsAnswer, self.cards),
            Endpoint(endpoint_of("decisions", self._shard), about, DecisionsRequest, DecisionsAnswer, self.decisions),
            Endpoint(
                endpoint_of("defragmentation", self._shard),
                defrag,
                DefragmentationRequest,
                DefragmentationAnswer,
                self.defragmentation,
            ),
            Endpoint(endpoint_of("explain", self._shard), explain, ExplainRequest, ExplainAnswer, self.explain),
        ]

    async def defragmentation(self, request: DefragmentationRequest) -> DefragmentationAnswer:  # noqa: ARG002  it has no parameters
        return await self._defragmentation()

    async def explain(self, request: ExplainRequest) -> ExplainAnswer:
        return self._explain(request)

    async def cards(self, request: CardsRequest) -> CardsAnswer:
        return CardsAnswer(
            tasks=tuple(PodCards(pods=tuple(pods[:MOST_PODS]), **found.document()) for pods, found in self._cards(request.job))
        )

    async def decisions(self, request: DecisionsRequest) -> DecisionsAnswer:
        return DecisionsAnswer(since=self._since, decisions=tuple(self._decisions(request.job)))

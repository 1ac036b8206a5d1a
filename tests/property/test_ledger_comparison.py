"""A comparison in slices, with news of pods between them, leaves the books that the whole at once and then the news would leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import (
    Card,
    Epoch,
    Generation,
    JobId,
    NodeName,
    NodeState,
    PodFact,
    PodPhase,
    PodUid,
    QueueName,
)
from hbox_ledger.core import lifecycle
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.reconcile import Comparison, ListOrder

NODES = NodeName("a"), NodeName("b")
PODS = 12


def fact(pod: int, phase: PodPhase = PodPhase.RUNNING, *, cpu: int = 1000) -> PodFact:
    uid = PodUid(f"pod{pod}")
    cards = pod % 2
    requests = {"cpu": cpu, "pods": 1} | ({"nvidia.com/gpu": 1} if cards else {})
    return PodFact(
        uid, "ml", uid, phase, NODES[pod // 2 % 2], JobId(uid), QueueName(f"q{pod % 3}"), 0, requests, cards=cards, ours=True
    )


def found(books: LedgerState, facts: Sequence[PodFact]) -> None:
    for one in facts:
        lifecycle.observed(books, books.step(1.0), one)


def in_order(books: LedgerState, facts: Sequence[PodFact]) -> list[PodFact]:
    order = ListOrder()
    order.add(books, facts)
    return order.facts()


@dataclass
class Case:
    """What the ledger knew, what the list says, and what is told of pods while it is compared: (before which pod of the list, fact)."""

    known: list[PodFact]
    listed: list[PodFact]
    news: list[tuple[int, PodFact]]

    def books(self) -> LedgerState:
        books = LedgerState(Epoch(1))
        for name in NODES:
            cards = tuple(Card(i, f"{name}{i}", "m", 100, 1) for i in range(PODS))
            room = {"cpu": 100_000, "pods": 100, "nvidia.com/gpu": PODS}
            books.know(name, NodeState(name, name, Generation(1), ready=True, allocatable=room, cards=cards))
        found(books, self.known)
        return books


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Each pod is at most once in the list, and news of it is newer: it was resized, has ended, or is new."""
    numbers = st.integers(0, PODS - 1)
    known = draw(st.sets(numbers))
    listed = draw(st.sets(numbers))
    phases = {pod: draw(st.sampled_from([PodPhase.RUNNING, PodPhase.RUNNING, PodPhase.SUCCEEDED])) for pod in sorted(listed)}
    cpus = {pod: draw(st.sampled_from([1000, 2000])) for pod in sorted(listed)}
    told = draw(st.lists(st.tuples(st.integers(0, PODS), numbers, st.sampled_from(["resized", "ended", "there"])), max_size=8))
    news = []
    for place, pod, what in sorted(told):
        if phases.get(pod) is PodPhase.SUCCEEDED:
            continue  # nothing comes after that
        cpu = {"resized": 3000 + place, "there": cpus.get(pod, 1000)}.get(what, 1000)
        news.append((place, fact(pod, PodPhase.FAILED if what == "ended" else PodPhase.RUNNING, cpu=cpu)))
    return Case([fact(pod) for pod in sorted(known)], [fact(p, phases[p], cpu=cpus[p]) for p in sorted(listed)], news)


def outline(books: LedgerState) -> tuple[object, ...]:
    """What the books say, without what follows from the order of taking: ids, and which of the equal cards."""
    live = {
        holding.claim.pod_uid: (holding.claim.node, holding.claim.requests, holding.claim.state, len(holding.claim.slices))
        for holding in books.live.values()
    }
    suspects = {books.live[id].claim.pod_uid for id in books.suspects}
    queues = {queue: held for queue, used in books.used.items() if (held := without_zeros(used))}
    return live, suspects, set(books.gone), queues, {name: without_zeros(books.node(name).used) for name in NODES}


def without_zeros(sums: Mapping[str, int]) -> dict[str, int]:
    """A sum that came and went again may stand at 0 or be left out: they say the same."""
    return {name: amount for name, amount in sums.items() if amount}


@given(case=cases(), miss_at_once=st.booleans())
def test_slices_with_news_between_them_and_the_whole_give_the_same_books(case: Case, miss_at_once: bool) -> None:
    whole = case.books()
    comparison = Comparison(whole.index)
    comparison.take(whole, whole.step(1.0), in_order(whole, case.listed))
    comparison.miss(whole, list(whole.live))
    found(whole, [one for _, one in case.news])

    sliced = case.books()
    comparison = Comparison(sliced.index)
    facts = in_order(sliced, case.listed)
    for place in range(PODS + 1):
        for one in (one for at, one in case.news if at == place):
            found(sliced, [one])
            comparison.changed([one.uid])
        comparison.take(sliced, sliced.step(1.0), facts[place : place + 1])
        sliced.validate()
    live = list(sliced.live)
    for some in [live] if miss_at_once else [[id] for id in live]:
        comparison.miss(sliced, some)

    assert outline(sliced) == outline(whole)


def test_a_pod_that_was_resized_during_a_comparison_is_not_booked_as_the_list_has_it() -> None:
    books = Case([fact(0)], [], []).books()
    comparison = Comparison(books.index)
    found(books, [fact(0, cpu=5000)])
    comparison.changed([PodUid("pod0")])
    comparison.take(books, books.step(1.0), [replace(fact(0), requests={"cpu": 1000, "pods": 1})])
    assert [holding.claim.requests["cpu"] for holding in books.live.values()] == [5000]

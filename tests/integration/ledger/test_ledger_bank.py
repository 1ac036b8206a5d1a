"""Any history of plans, evidence, rules, restarts and looks: the database proves itself, and usage is the integral of live claims over time."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from hbox_common.events import BindOutcome
from hbox_common.model import DEFAULT_QUEUE, CardSlice, ClaimId, PodPhase, Queue
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.adapters.audit import prove

from .conftest import Kit, Running


@dataclass
class Integral:
    """Who held how many thousandths of cards when, in whole seconds, and what the queue deserved: noted by the test, added up second by second."""

    live: dict[ClaimId, tuple[int, int]] = field(default_factory=dict)  #: claim -> thousandths, since
    ended: list[tuple[int, int, int]] = field(default_factory=list)  #: thousandths, from, to
    deserved: list[tuple[int, int]] = field(default_factory=list)  #: from then on so many thousandths

    def look(self, running: Running) -> None:
        now = int(running.clock[0])
        books = running.ledger.state.live
        for id, holding in books.items():
            self.live.setdefault(id, (sum(10 * s.cores for s in holding.claim.slices), now))
        for id in self.live.keys() - books.keys():
            cards, since = self.live.pop(id)
            self.ended.append((cards, since, now))

    def sums(self, now: int) -> tuple[int, int, int]:
        """Own, borrowed, idle."""
        spans = self.ended + [(cards, since, now) for cards, since in self.live.values()]
        steps: Counter[int] = Counter()
        for cards, since, to in spans:
            steps[since] += cards
            steps[to] -= cards
        rules, using, deserved = dict(self.deserved), 0, 0
        own = borrowed = idle = 0
        for second in range(1000, now):
            using += steps[second]
            deserved = rules.get(second, deserved)
            own += min(using, deserved)
            borrowed += max(0, using - deserved)
            idle += max(0, deserved - using)
        return own, borrowed, idle


async def act(kit: Kit, running: Running, random: Random, number: int, integral: Integral) -> None:
    pods = [holding.claim for holding in running.ledger.state.live.values()]
    match random.choice(["plan", "plan", "plan", "bound", "gone", "gone", "found", "rules", "look", "wait"]):
        case "plan":
            taken = random.sample(range(4), random.randint(0, 3))
            slices = tuple(CardSlice(i, cores := random.choice([30, 100]), 40_960 * cores // 100) for i in taken)
            await running.propose(kit.plan(f"p{number}", (f"pod{number}", random.choice(["n0", "n1"]), slices)))
        case "bound" if pods:
            await running.outcome(f"m{number}", random.choice(pods).pod_uid, BindOutcome.BOUND)
        case "gone" if pods:
            claim = random.choice(pods)
            await running.see(f"m{number}", kit.fact(claim.pod_uid, claim.node, PodPhase.GONE))
        case "found":
            await running.see(f"m{number}", kit.fact(f"pod{number}", "n1", slices=(kit.whole(random.randint(0, 3)),)))
        case "rules":
            cards = random.randint(0, 6)
            await running.ledger.set_queues(Queue(DEFAULT_QUEUE, deserved={GPU: cards, "cpu": random.choice([0, 2000])}))
            integral.deserved.append((int(running.clock[0]), 1000 * cards))
        case "look":
            await running.ledger.meter()
    integral.look(running)
    running.clock[0] += random.choice([0.0, 0.4, 3.7, 60.0])


@pytest.mark.parametrize("seed", range(3))
async def test_the_books_balance_and_usage_is_the_integral_of_live_claims(kit: Kit, database_url: str, seed: int) -> None:
    random, integral, now = Random(seed), Integral(), 1000.0
    for life in range(4):
        async with kit.started(database_url, now=now) as running:
            claims = [holding.claim for holding in running.ledger.state.live.values()]
            await running.open(*(kit.fact(c.pod_uid, c.node, claim=c.id, slices=c.slices) for c in claims))
            integral.look(running)
            for number in range(30):
                await act(kit, running, random, 100 * life + number, integral)
            assert prove(database_url).faults == []
            now = running.clock[0]
            if life == 3:
                [(_, found)] = await running.views.used([], since=0, until=2**40)
                assert (found.own, found.borrowed, found.idle) == integral.sums(int(now))
                assert found.own > 0
                assert found.borrowed > 0
                assert found.idle > 0
    proof = prove(database_url)
    assert proof.faults == []
    assert proof.records > 60

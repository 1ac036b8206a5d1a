"""The smallest changes by which, alone, a pending job starts now.

Theory of operation. A change is a `Knob`: a list of steps, the smallest first, each of which turns the present state into another one (`Trial`): the job with
fewer pods, a queue with a higher limit, a node without its cordon. The engine finds for each trial whether the job starts (`Engine`: a session of the policy
with the same rules, whose effects are taken back). So every change that is returned is proven on the state of this moment; it is not reserved.

The search first tries the largest step of every knob, one trial each: what does not help at its largest is out. Of the others it finds the smallest step by
bisection: that step starts the job, and the step before it does not. It does so on free resources, then, where the policy may evict pods for the job, for
smaller steps and other knobs with evictions. If no single change helps, it tries pairs in the same way. A change that the limits on trials or time interrupt
before its smallest step is proven is left out.

`ofjob` has the knobs of the job's own fields, `ofqueues` those of queues and rights, `ofnodes` those of nodes. Facts by kind, for the texts:

    PODS       pods, of: minMember                        QUEUE     queue, of
    CARDS      cards, of: of each pod                     LIMIT     queue, rule (capability or deserved), resource, amount, of, more
    RESOURCES  resource, amount, of                       PRIORITY  class, value, of
    MODEL      model, of, nodes: that have it             WALLTIME  walltime, of
    TIER       mode (hard or soft), tier, of              NODES     count, among, nodes, states (cordoned, cards, unhealthy, notReady)
    SELECTOR   key, value ("" = without the key), of      MOVES     pods
"""

from .search import ChangeLimits, FoundChanges, Knob, smallest_changes
from .trial import Attempt, Engine, Trial

__all__ = ["Attempt", "ChangeLimits", "Engine", "FoundChanges", "Knob", "Trial", "smallest_changes"]

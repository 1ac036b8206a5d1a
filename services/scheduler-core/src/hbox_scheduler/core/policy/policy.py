"""A policy as batches see it: of a volcano-scheduler.conf the masks and scores that are functions of a pod's shape and a node's row alone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows
from ..cluster.task import Task
from ..devices import TIE_BREAK, CardFit, ranked_by_devices
from ..framework.conf import Conf
from ..framework.fitplugin import FitPlugin
from ..framework.hooks import CardOrder, EqualNodeOrder, ShapeMask, ShapeRoom, ShapeScore
from ..framework.hostports import HostPorts
from ..framework.resources import ResourceFit
from ..framework.zones import ZoneFit
from ..plugins.fgd import FgdPlugin, Mix, Shape
from .default import PolicyName, default_conf
from .registry import plugins_of

_UNLIMITED = 1 << 30

_FITS: Sequence[FitPlugin] = (HostPorts(), ResourceFit(cards=False), CardFit(), ResourceFit(cards=True), ZoneFit())


@dataclass(frozen=True)
class Policy:
    """`fills` and `version` sum up the scores': see `framework.hooks.ShapeScore`. All in the order of the conf."""

    conf: Conf
    masks: Sequence[ShapeMask]
    scores: Sequence[ShapeScore]
    cards: Sequence[CardOrder]
    rooms: Sequence[ShapeRoom] = ()
    fits: Sequence[FitPlugin] = _FITS
    equals: Sequence[EqualNodeOrder] = ()

    @property
    def learned(self) -> Mapping[str, ShapeScore]:
        """By name, for other sessions: they score by what this policy's plugins have learned."""
        return {plugin.name: plugin for plugin in self.scores}

    @cached_property
    def fills(self) -> bool:
        return all(plugin.fills for plugin in self.scores)

    @property
    def equal_nodes(self) -> Sequence[EqualNodeOrder]:
        """The plugins that order nodes with equal scores."""
        return self.equals

    def orders_cards_of(self, task: Task) -> bool:
        """Whether a plugin orders a node's cards for such a pod."""
        return any(plugin.orders_cards_of(task) for plugin in self.cards)

    @property
    def version(self) -> int:
        return sum(plugin.version for plugin in self._learning)

    @cached_property
    def _learning(self) -> Sequence[ShapeScore]:
        """Plugins whose version may rise: checked before each placement."""
        return [plugin for plugin in self.scores if type(plugin).version is not ShapeScore.version]

    def learn(self, task: Task, pods: int) -> None:
        for plugin in self.scores:
            plugin.learn(task, pods)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A context after which scores are as before it, whatever was placed in it."""
        with ExitStack() as stack:
            for plugin in self.scores:
                stack.enter_context(plugin.trial())
            yield

    def allowed(self, columns: Columns, rows: Rows, task: Task) -> Bools:
        """`[n]`: alive nodes that fail no mask."""
        mask = columns.alive[rows].copy()
        for plugin in self.masks:
            for _, fails in plugin.shape_failures(columns, rows, task):
                mask &= ~fails
        if task.pool is not None:
            mask &= columns.in_pool(task.pool, rows)
        return mask

    def limits(self, task: Task) -> bool:
        """Whether room is kept from such pods for others."""
        return any(keeper.limits(task) for keeper in self.rooms)

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        """`[n]`: pods that fit by what is booked, and what plugins keep of the rest for others; 0 or more."""
        least: Ints | None = None
        for keeper in self.rooms:
            if keeper.limits(task):
                room = keeper.shape_room(columns, rows, task)
                least = room if least is None else np.minimum(least, room, out=least)
        for plugin in self.fits:
            fits = plugin.capacity(columns, rows, task)
            if fits is not None:
                least = fits if least is None else np.minimum(least, fits, out=least)
        if least is None:  # not even to be a pod
            return np.full(columns.alive[rows].shape, _UNLIMITED, dtype=np.int64)
        return np.maximum(least, 0, out=least)

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        """`[n]`: the sum; where vendors' rules rank the nodes for such a pod, it decides among those that are equal to these."""
        own = ranked_by_devices(columns, rows, task)
        if own is not None:
            return own + TIE_BREAK * self._sum(columns, rows, task)
        return self._sum(columns, rows, task)

    def _sum(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        total: Floats | None = None
        for plugin in self.scores:
            if (score := plugin.shape_score(columns, rows, task)) is not None:
                total = score.copy() if total is None else np.add(total, score, out=total)
        return np.zeros(columns.alive[rows].shape, dtype=np.float64) if total is None else total

    def observe(self, columns: Columns) -> None:
        """Let the scores that depend on all nodes follow them (`ShapeScore.observe`)."""
        for plugin in self._observing:
            plugin.observe(columns)

    @cached_property
    def _observing(self) -> Sequence[ShapeScore]:
        return [plugin for plugin in self.scores if type(plugin).observe is not ShapeScore.observe]

    def by_amounts(self, columns: Columns, task: Task) -> bool:
        """Whether rows that are equal in amounts and cards (`Columns.kind`, `Columns.booked`) are equal to all fits, scores, and what keeps room for others."""
        nowhere = slice(0, 0)
        return (
            not task.ports
            and (task.cards is None or task.cards.devices is None)
            and all(keeper.room_by_amounts(columns) or not keeper.limits(task) for keeper in self.rooms)
            and all(plugin.by_amounts or plugin.shape_score(columns, nowhere, task) is None for plugin in self.scores)
        )

    def by_requests(self, columns: Columns, task: Task) -> bool:
        """Whether all scores that such pods have go by requests (`ShapeScore.by_requests`); asked where `by_amounts` is true."""
        nowhere = slice(0, 0)
        return all(plugin.by_requests or plugin.shape_score(columns, nowhere, task) is None for plugin in self.scores)

    def terms(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Floats]]:
        """`[n]` each: what `score` is the sum of, by plugin."""
        for plugin in self.scores:
            if (score := plugin.shape_score(columns, rows, task)) is not None:
                yield plugin.name, score

    def card_keys(self, columns: Columns, rows: Ints, task: Task) -> Floats | None:
        """`[n, D]`, the lowest first; None = no plugin has an order."""
        for plugin in self.cards:
            if (keys := plugin.card_keys(columns, rows, task)) is not None:
                return keys
        return None


def policy_from(conf: Conf) -> Policy:
    """The parts of a conf that judge by shape and hold from session to session, without hooks that are switched off and plugins that judge by what one session
    computes. Raises InvalidRequest for arguments that are wrong."""
    plugins = [
        (plugin, plugin_conf.off)
        for tier, confs in zip(plugins_of(conf), conf.tiers, strict=True)
        for plugin, plugin_conf in zip(tier, confs, strict=True)
    ]
    return Policy(
        conf,
        masks=[
            plugin
            for plugin, off in plugins
            if isinstance(plugin, ShapeMask) and ShapeMask not in off and not plugin.of_session
        ],
        scores=[
            plugin
            for plugin, off in plugins
            if isinstance(plugin, ShapeScore) and ShapeScore not in off and not plugin.of_session
        ],
        cards=[plugin for plugin, off in plugins if isinstance(plugin, CardOrder) and CardOrder not in off],
        equals=[plugin for plugin, off in plugins if isinstance(plugin, EqualNodeOrder) and EqualNodeOrder not in off],
        rooms=[
            plugin
            for plugin, off in plugins
            if isinstance(plugin, ShapeRoom) and ShapeRoom not in off and not plugin.of_session
        ],
    )


def policy_of(name: PolicyName, *, mix: Mapping[Shape, float] | None = None) -> Policy:
    """One of HBox's own policies. `mix`: a given target mix, for those that else learn it."""
    policy = policy_from(default_conf(name))
    for plugin in policy.scores:
        if mix is not None and isinstance(plugin, FgdPlugin):
            plugin.mix = Mix(mix)
    return policy

"""extender: filter and score nodes by a user's web service (sources: volcano-extender).

Volcano sends one request per pod and node. Here one request covers all nodes, and pods with equal requests share its answer for the session: the request
(`_about`) contains everything that an answer may depend on. POST <urlPrefix>/<verb> with

    {"task": {"namespace": "ml", "queue": "q", "role": "worker", "priority": 0, "requests": {"cpu": 1000, "example.com/card": 8}, "nodeSelector": {},
              "labels": {}, "annotations": {}}, "nodes": ["n1", "n2"]}

The answer to predicateVerb is {"failedNodes": {"n1": "why"}}, to prioritizeVerb {"nodeScore": {"n2": 12.5}}; either may be {"errorMessage": "why"}. Without an
answer the scheduler does not place the pods of the request, unless `extender.ignorable` is true.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model import NodeName, is_host_port
from hbox_common.model.resources import PODS

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats
from ..cluster.entities import Gang, Member, Status
from ..explain.labels import Label
from ..framework.hooks import PodMask, PodScore, Validity
from ..framework.webhooks import Question
from .arguments import Arguments
from .durations import duration_s

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Volcano's verbs that are not asked here.
_UNASKED = (
    "extender.onSessionOpenVerb", "extender.onSessionCloseVerb", "extender.preemptableVerb", "extender.reclaimableVerb",
    "extender.queueOverusedVerb", "extender.jobEnqueueableVerb", "extender.jobEnqueuedVerb", "extender.jobReadyVerb",
    "extender.allocateFuncVerb", "extender.deallocateFuncVerb",
)  # fmt: skip

#: Written by kubectl; different for each object though nothing else is.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

#: Maximum number of distinct reasons against nodes, and of characters of each.
_REASONS, _REASON_LENGTH = 8, 120


@dataclass(slots=True)
class Opinion:
    """The answer for members with equal requests. `problem`: why there is none; then these members are not placed."""

    failed: dict[str, Bools] = field(default_factory=dict)  #: reason -> `[N]`
    scores: Floats | None = None
    problem: str = ""


class Extender(Validity, PodMask, PodScore):
    """Arguments: extender.urlPrefix, .predicateVerb, .prioritizeVerb, .httpTimeout (1s), .ignorable (false), .managedResources (names: it
    is asked about pods that ask for one of them; none: about all)."""

    name = "extender"
    passing = True
    time_dependent = True  # the web service's answers change, and the service cannot declare it
    sees_plain_pods = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._prefix = arguments.text("extender.urlPrefix").rstrip("/")
        timeout = arguments.text("extender.httpTimeout", "1s")
        self._predicate = arguments.text("extender.predicateVerb")
        self._prioritize = arguments.text("extender.prioritizeVerb")
        self._ignorable = arguments.switch("extender.ignorable", False)
        self._managed = frozenset(map(str, arguments.listing("extender.managedResources")))
        asked = "extender.predicateVerb, extender.prioritizeVerb"
        for verb in _UNASKED:
            if arguments.text(verb):
                raise InvalidRequest(
                    f"plugin extender, argument {verb}: HBox only sends requests about nodes, and none during a cycle",
                    hint=f"it asks: {asked}",
                )
        arguments.done()
        if not self._prefix.startswith(("http://", "https://")):
            raise InvalidRequest(
                f"plugin extender, argument extender.urlPrefix: {self._prefix!r} is no address",
                hint="write http://host:port/path",
            )
        if not (self._predicate or self._prioritize):
            raise InvalidRequest("plugin extender asks nothing", hint=f"write one of: {asked}")
        timeout_s = duration_s(timeout)
        if not timeout_s:
            raise InvalidRequest(
                f"plugin extender, argument extender.httpTimeout: {timeout!r} is not a duration", hint="write it as 100ms or 1s"
            )
        self._timeout_s = timeout_s

    def open(self, session: "Session") -> None:
        self._session = session
        self._nodes = json.dumps([session.node(row) for row in session.rows.tolist()])
        self._by_member: dict[tuple[int, Gang, str], Opinion] = {}
        self._by_question: dict[str, Opinion] = {}

    def settled(self, member: Member) -> bool:  # noqa: ARG002  # the hook's signature
        """An answer holds for the session."""
        return True

    def valid(self, gang: Gang) -> str:
        """Why there is no answer about one of its members, or ""."""
        return next((why for member in gang.of(Status.PENDING) if (why := self._opinion(member).problem)), "")

    def failures(self, member: Member, columns: Columns) -> Iterator[tuple[str, Bools]]:
        opinion = self._opinion(member)
        if opinion.problem:
            yield Label.EXTENDER_SILENT, np.ones(columns.size, dtype=np.bool_)
        yield from opinion.failed.items()

    def score(self, member: Member, columns: Columns) -> Floats | None:  # noqa: ARG002
        """As it was answered; nodes that the answer does not name score 0."""
        return self._opinion(member).scores

    def _opinion(self, member: Member) -> Opinion:
        if self._managed and not any(units > 0 and name in self._managed for name, units in member.task.requests.items()):
            return _NO_OPINION
        key = (id(member.task), member.gang, member.role)
        found = self._by_member.get(key)
        if found is None:
            about = _about(member)
            found = self._by_question.get(about)
            if found is None:
                found = self._by_question[about] = self._ask(f'{{"task": {about}, "nodes": {self._nodes}}}')
            self._by_member[key] = found
        return found

    def _ask(self, question: str) -> Opinion:
        opinion = Opinion()
        try:
            if self._predicate:
                opinion.failed = self._failed(self._answer(self._predicate, question, "failedNodes"))
            if self._prioritize:
                opinion.scores = self._scores(self._answer(self._prioritize, question, "nodeScore"))
        except _Awaited as e:
            opinion.problem = str(e)
        except Unavailable as e:
            if self._ignorable:
                self._session.outcome.warn(f"plugin extender is passed over: {e.message}")
            else:
                opinion.problem = f"extender {e.message}"
        return opinion

    def _answer(self, verb: str, question: str, key: str) -> Mapping[str, Any]:
        """What the answer has under `key`. Raises Unavailable, _Awaited."""
        url = f"{self._prefix}/{verb}"
        content = self._session.ask(Question(url, question, self._timeout_s))
        if content is None:
            raise _Awaited(f"extender {url} has been asked")
        if error := content.get("errorMessage"):
            raise Unavailable(f"{url}: {error}")
        answer = content.get(key)
        if not isinstance(answer, Mapping):
            raise Unavailable(f"{url}: the answer has no {key}")
        return answer

    def _failed(self, answer: Mapping[str, Any]) -> dict[str, Bools]:
        failed: dict[str, Bools] = {}
        for node, why in answer.items():
            if (row := self._session.row(NodeName(node))) is None:
                continue
            label = f"{Label.EXTENDER_REFUSED}: {str(why)[:_REASON_LENGTH]}" if why else str(Label.EXTENDER_REFUSED)
            if label not in failed and len(failed) >= _REASONS:
                label = str(Label.EXTENDER_REFUSED)
            failed.setdefault(label, np.zeros(self._session.columns.size, dtype=np.bool_))[row] = True
        return failed

    def _scores(self, answer: Mapping[str, Any]) -> Floats:
        """Raises Unavailable where a score is no number."""
        scores = np.zeros(self._session.columns.size, dtype=np.float64)
        for node, score in answer.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or not isfinite(score):
                raise Unavailable(f"{self._prefix}/{self._prioritize}: the score of {node} is {score!r}, which is not a number")
            if (row := self._session.row(NodeName(node))) is not None:
                scores[row] = score
        return scores


#: Of pods that it is not asked about.
_NO_OPINION = Opinion()


class _Awaited(Exception):
    """The answer is on its way."""


def _about(member: Member) -> str:
    gang, task = member.gang, member.task
    about: dict[str, Any] = {
        "namespace": member.namespace,
        "queue": gang.queue,
        "role": member.role,
        "priority": member.priority,
        "requests": {name: units for name, units in task.requests.items() if name != PODS and not is_host_port(name)},
        "nodeSelector": dict(task.node_selector),
        "labels": dict(gang.labels),
        "annotations": {key: value for key, value in gang.annotations.items() if key != _LAST_APPLIED},
    }
    if (cards := task.cards) is not None:
        about["cards"] = {
            "count": cards.count,
            "cores": cards.cores,
            "memoryMib": cards.memory_mib,
            "memoryPercent": cards.memory_percent,
            "models": list(cards.models),
        }
    return json.dumps(about, sort_keys=True)

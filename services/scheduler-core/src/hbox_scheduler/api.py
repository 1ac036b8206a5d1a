"""What may be asked of scheduler-core, in JSON: endpoints of the micro service `hbox-scheduler-core`. Names stay; fields may be added."""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from hbox_common.bus import Endpoint
from hbox_common.model import JobId

from .core.explain.decisions import Decision


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DecisionsRequest(_Model):
    """A job by its id."""

    job: JobId


class DecisionsAnswer(_Model):
    """The decisions that gave the job places, oldest first, of those that this process took and still keeps. `since`: when it began, in seconds since the
    epoch."""

    since: float
    decisions: tuple[Decision, ...]


class Api:
    """Answers from what the scheduler keeps of its decisions."""

    def __init__(self, decisions: Callable[[JobId], list[Decision]], *, since: float) -> None:
        self._decisions, self._since = decisions, since

    def endpoints(self) -> list[Endpoint]:
        about = "Why a job has its places: scores of the recent decisions, and who came second"
        return [Endpoint("decisions", about, DecisionsRequest, DecisionsAnswer, self.decisions)]

    async def decisions(self, request: DecisionsRequest) -> DecisionsAnswer:
        return DecisionsAnswer(since=self._since, decisions=tuple(self._decisions(request.job)))

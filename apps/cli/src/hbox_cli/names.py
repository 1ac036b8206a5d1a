"""Types of arguments that name things of the platform, with their completion in shells."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from hbox_common.errors import HBoxError

if TYPE_CHECKING:
    from .context import Context as HBoxContext

#: Of jobs, so that a key press does not list a whole cluster.
_MOST = 200


class _Named(click.ParamType[str]):
    """A name; completed by those that the platform lists. A platform that does not answer completes nothing."""

    def __init__(self, what: str) -> None:
        self.name = what

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from .access import jobs_of, source_of  # noqa: PLC0415  for shells alone
        from .access.source import Wanted  # noqa: PLC0415
        from .context import Context  # noqa: PLC0415

        given: HBoxContext = ctx.find_object(Context) or Context()
        with suppress(HBoxError, OSError):
            match self.name:
                case "job":
                    names = [item["name"] for item in jobs_of(given, Wanted(limit=_MOST))]
                    names += [] if "/" in incomplete else [name.partition("/")[2] for name in names]
                case "queue":
                    names = [item["name"] for item in source_of(given).queues()]
                case _:
                    names = [item["name"] for item in source_of(given).nodes()]
            return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]
        return []


JOB_NAME = _Named("job")
QUEUE_NAME = _Named("queue")
NODE_NAME = _Named("node")

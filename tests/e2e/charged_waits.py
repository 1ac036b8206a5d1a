"""Seconds of waiting by code, as job-controller published them: they survive a kill from then on, up to a second after the wait ended."""

from hbox_cli.platform.layout import Layout
from hbox_cli.session import bus_of, last_values
from hbox_common.events import WaitsAttributed
from hbox_common.model import JobId

from .. import waiting
from .platform_world import Up


async def until_published(running: Up, job: JobId, *, ended: str) -> None:
    """Wait until the job's ended waits with the code `ended` are in the stream."""
    async with bus_of(Layout(running.state).running()) as bus:

        async def published() -> bool:
            values = [one for one in await last_values(bus, [WaitsAttributed]) if isinstance(one, WaitsAttributed)]
            return any(wait.job == job and ended in wait.seconds for value in values for wait in value.waits)

        await waiting.until(published, f"the seconds of {ended} are in the stream", timeout_s=60)

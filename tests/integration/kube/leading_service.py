"""A service of two processes: appends "<instance>" to a file while it leads, which is what a service's effects would be. Run by test_leading."""

import asyncio
import os
from pathlib import Path

from hbox_common.runtime import Health, Settings, led, main, turn


async def run(settings: Settings, health: Health) -> None:
    try:
        await asyncio.sleep(float(os.environ["CONNECTS_S"]))
        await turn()
        await act(settings, health)
    finally:
        await asyncio.sleep(float(os.environ["DRAINS_S"]))


async def act(settings: Settings, health: Health) -> None:
    health.condition("work").ok()
    while True:
        with Path(os.environ["ACTS"]).open("a") as file:  # noqa: ASYNC230  a line
            file.write(settings.instance + "\n")
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    main("binder", Settings, led("binder", run))

"""`python -m hbox_console`: the service."""

from hbox_common.runtime import main

from .app import run
from .settings import ConsoleSettings

if __name__ == "__main__":
    main("console", ConsoleSettings, run)

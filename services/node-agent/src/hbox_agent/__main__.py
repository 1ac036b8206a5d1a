"""`python -m hbox_agent`: the service."""

from hbox_common.runtime import main

from .app import run
from .settings import AgentSettings

if __name__ == "__main__":
    main("node-agent", AgentSettings, run)

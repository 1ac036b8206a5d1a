"""`python -m hbox_topology`: the service."""

from hbox_common.runtime import main

from .app import run
from .settings import TopologySettings

if __name__ == "__main__":
    main("topology-collector", TopologySettings, run)

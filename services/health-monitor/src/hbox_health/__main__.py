"""`python -m hbox_health`: the service."""

from hbox_common.runtime import led, main

from .app import run
from .settings import HealthSettings

if __name__ == "__main__":
    main("health-monitor", HealthSettings, led("health-monitor", run))

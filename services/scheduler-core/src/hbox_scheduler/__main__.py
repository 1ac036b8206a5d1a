"""`python -m hbox_scheduler`: the service."""

from hbox_common.runtime import led, main

from .app import run
from .settings import SchedulerSettings

if __name__ == "__main__":
    main("scheduler-core", SchedulerSettings, led("scheduler-core", run))

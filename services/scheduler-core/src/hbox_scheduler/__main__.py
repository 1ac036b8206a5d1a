"""`python -m hbox_scheduler`: the service."""

from hbox_common.runtime import main

from .app import run
from .settings import SchedulerSettings

if __name__ == "__main__":
    main("scheduler-core", SchedulerSettings, run)

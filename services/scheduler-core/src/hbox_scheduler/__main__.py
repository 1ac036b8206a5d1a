"""`python -m hbox_scheduler`: the service."""

from hbox_common.model.shards import lease_of
from hbox_common.runtime import led, main

from .app import run
from .settings import SchedulerSettings

if __name__ == "__main__":
    main(
        "scheduler-core",
        SchedulerSettings,
        led("scheduler-core", run, lease=lambda settings: lease_of("scheduler-core", settings.shard)),
    )

"""`python -m hbox_jobs`: the service."""

from hbox_common.runtime import led, main

from .app import run
from .settings import JobControllerSettings

if __name__ == "__main__":
    main("job-controller", JobControllerSettings, led("job-controller", run))

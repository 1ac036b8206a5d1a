"""`python -m hbox_admission`: the service."""

from hbox_common.runtime import main

from .app import run
from .settings import AdmissionSettings

if __name__ == "__main__":
    main("admission", AdmissionSettings, run)

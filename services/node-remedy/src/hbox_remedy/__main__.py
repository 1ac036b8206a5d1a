"""`python -m hbox_remedy`: the service."""

from hbox_common.runtime import main

from .app import run
from .settings import RemedySettings

if __name__ == "__main__":
    main("node-remedy", RemedySettings, run)

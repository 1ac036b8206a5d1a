"""`python -m hbox_binder`: the service."""

from hbox_common.runtime import led, main

from .app import run
from .settings import BinderSettings

if __name__ == "__main__":
    main("binder", BinderSettings, led("binder", run))

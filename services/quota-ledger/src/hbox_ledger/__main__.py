"""python -m hbox_ledger"""

from hbox_common.runtime import led, main

from .app import run
from .settings import LedgerSettings

if __name__ == "__main__":
    main("quota-ledger", LedgerSettings, led("quota-ledger", run))

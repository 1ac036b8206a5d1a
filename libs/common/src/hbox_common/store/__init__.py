"""A service's own database: SQLAlchemy Core, one writer thread, group commit; SQLite by default, PostgreSQL by URL."""

from .batch import Batch
from .inbox import Inbox
from .outbox import Letter, Outbox
from .prepared import Prepared
from .reader import reading
from .writer import Store

__all__ = ["Batch", "Inbox", "Letter", "Outbox", "Prepared", "Store", "reading"]

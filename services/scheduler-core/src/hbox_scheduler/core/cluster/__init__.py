"""The cluster in columns, the bookings on it, and the logs that say which rows changed."""

from .amounts import Amount
from .bookings import Booking, Bookings
from .changelog import ChangeLog
from .columns import Batch, Columns
from .hostports import HostPorts, Ports, ports_of

__all__ = ["Amount", "Batch", "Booking", "Bookings", "ChangeLog", "Columns", "HostPorts", "Ports", "ports_of"]

"""The cluster in columns, the bookings on it, and the logs that say which rows changed."""

from .bookings import Booking, Bookings
from .changelog import ChangeLog
from .columns import Amount, Batch, Columns
from .hostports import HostPorts, Ports, ports_of

__all__ = ["Amount", "Batch", "Booking", "Bookings", "ChangeLog", "Columns", "HostPorts", "Ports", "ports_of"]

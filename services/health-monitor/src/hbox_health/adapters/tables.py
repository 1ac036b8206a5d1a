"""health-monitor's tables: its incidents, what its judgement remembers of each node, orders of operators, notices to owners, and which process writes. Times
are seconds since the epoch.
"""

from pathlib import Path

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Table, Text

metadata = MetaData()

#: The migrations that make these tables.
VERSIONS = Path(__file__).with_name("versions")

incidents = Table(
    "incidents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("node", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("changed", Double, nullable=False),
    Column("body", Text, nullable=False),  # JSON
    Index("incidents_changed", "changed"),
)

memories = Table(
    "memories",
    metadata,
    Column("node", Text, primary_key=True),  # empty: what belongs to no single node
    Column("body", Text, nullable=False),  # JSON
)

orders = Table(
    "orders",
    metadata,
    Column("id", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("node", Text, nullable=False),
    Column("body", Text, nullable=False),  # JSON
    Index("orders_at", "at"),
)

#: Notices to owners of pods that are not published yet.
notices = Table(
    "notices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("body", Text, nullable=False),  # JSON
)

#: One row: the process that writes. Each start begins the next epoch, and a write of an earlier one fails.
writer = Table(
    "writer",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)

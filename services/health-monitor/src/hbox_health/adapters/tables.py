"""health-monitor's tables: its incidents, what its judgement remembers of each node, and orders of operators. Times are seconds since the epoch."""

from pathlib import Path

from sqlalchemy import Column, Double, Index, MetaData, Table, Text

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

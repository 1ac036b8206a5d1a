"""health-monitor's tables: its incidents, and how far each node's facts were judged. Times are seconds since the epoch."""

from pathlib import Path

from sqlalchemy import BigInteger, Column, Double, Index, MetaData, Table, Text

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

node_facts = Table(
    "node_facts",
    metadata,
    Column("node", Text, primary_key=True),
    Column("boot_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("earlier_boots", Text, nullable=False),  # separated by commas
)

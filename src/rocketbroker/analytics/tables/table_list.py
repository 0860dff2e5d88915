"""All tables by name."""

from typing import Final

from rocketbroker.analytics.tables.config_tables import ConsumerOffsetsTable, SubscriptionGroupsTable, TopicsTable
from rocketbroker.analytics.tables.consume_queue import ConsumeQueueTable
from rocketbroker.analytics.tables.corrupt_ranges import CorruptRangesTable
from rocketbroker.analytics.tables.dead_letters import DeadLettersTable
from rocketbroker.analytics.tables.delayed import DelayedTable
from rocketbroker.analytics.tables.index import IndexTable
from rocketbroker.analytics.tables.messages import MessagesTable
from rocketbroker.analytics.tables.table import Table
from rocketbroker.common.errors import ConfigError

#: Default table.
DEFAULT_TABLE: Final = MessagesTable.name

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        MessagesTable(),
        ConsumeQueueTable(),
        IndexTable(),
        TopicsTable(),
        SubscriptionGroupsTable(),
        ConsumerOffsetsTable(),
        DelayedTable(),
        DeadLettersTable(),
        CorruptRangesTable(),
    )
}


def find_table(name: str) -> Table:
    """Return the table called ``name``; raise :class:`ConfigError` if it is unknown."""
    if name not in TABLES:
        raise ConfigError(f"table {name!r} is unknown; use one of {', '.join(TABLES)}")
    return TABLES[name]

"""PySpark data sources, jobs and reports over store files.

The names below load what they need on first use: pyspark and pyarrow are heavy, and come with the extra ``analytics``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketbroker.analytics.decode_report import DecodeReport as DecodeReport
    from rocketbroker.analytics.local_session import spark_session as spark_session
    from rocketbroker.analytics.message_count import TopicQueueCount as TopicQueueCount
    from rocketbroker.analytics.message_count import count_messages as count_messages
    from rocketbroker.analytics.message_reader import read_store as read_store
    from rocketbroker.analytics.rocketmq_store import register as register
    from rocketbroker.analytics.selection import Selection as Selection
    from rocketbroker.analytics.spark_tables import create_views as create_views
    from rocketbroker.analytics.spark_tables import messages as messages
    from rocketbroker.analytics.spark_tables import table as table
    from rocketbroker.analytics.store_root import StoreRoot as StoreRoot
    from rocketbroker.analytics.store_root import store_roots as store_roots
    from rocketbroker.analytics.tables.table import TableOptions as TableOptions
    from rocketbroker.analytics.tables.table_reader import read_table as read_table

_HOMES = {
    "DecodeReport": "decode_report",
    "Selection": "selection",
    "StoreRoot": "store_root",
    "TableOptions": "tables.table",
    "TopicQueueCount": "message_count",
    "count_messages": "message_count",
    "create_views": "spark_tables",
    "messages": "spark_tables",
    "read_store": "message_reader",
    "read_table": "tables.table_reader",
    "register": "rocketmq_store",
    "spark_session": "local_session",
    "store_roots": "store_root",
    "table": "spark_tables",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

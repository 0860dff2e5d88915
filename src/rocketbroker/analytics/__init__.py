"""PySpark data sources, jobs and reports over store files.

The names below load what they need on first use: pyspark and pyarrow are heavy, and come with the extra ``analytics``.
"""

from typing import TYPE_CHECKING

from rocketbroker.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketbroker.analytics.columns.decode_report import DecodeReport as DecodeReport
    from rocketbroker.analytics.columns.selection import Selection as Selection
    from rocketbroker.analytics.files.store_root import StoreRoot as StoreRoot
    from rocketbroker.analytics.files.store_root import store_roots as store_roots
    from rocketbroker.analytics.jobs.message_count import TopicQueueCount as TopicQueueCount
    from rocketbroker.analytics.jobs.message_count import count_locally as count_locally
    from rocketbroker.analytics.jobs.message_count import count_messages as count_messages
    from rocketbroker.analytics.jobs.scope import Scope as Scope
    from rocketbroker.analytics.log.message_reader import read_store as read_store
    from rocketbroker.analytics.spark.from_body import from_body as from_body
    from rocketbroker.analytics.spark.local_session import spark_session as spark_session
    from rocketbroker.analytics.spark.rocketmq import register as register
    from rocketbroker.analytics.spark.rocketmq_store import create_views as create_views
    from rocketbroker.analytics.spark.rocketmq_store import messages as messages
    from rocketbroker.analytics.spark.rocketmq_store import table as table
    from rocketbroker.analytics.spark.source_options import encode_selection as encode_selection
    from rocketbroker.analytics.tables.table import TableOptions as TableOptions
    from rocketbroker.analytics.tables.table_reader import read_table as read_table

_HOMES = {
    "DecodeReport": ".columns.decode_report",
    "Scope": ".jobs.scope",
    "Selection": ".columns.selection",
    "StoreRoot": ".files.store_root",
    "TableOptions": ".tables.table",
    "TopicQueueCount": ".jobs.message_count",
    "count_locally": ".jobs.message_count",
    "count_messages": ".jobs.message_count",
    "create_views": ".spark.rocketmq_store",
    "encode_selection": ".spark.source_options",
    "from_body": ".spark.from_body",
    "messages": ".spark.rocketmq_store",
    "read_store": ".log.message_reader",
    "read_table": ".tables.table_reader",
    "register": ".spark.rocketmq",
    "spark_session": ".spark.local_session",
    "store_roots": ".files.store_root",
    "table": ".spark.rocketmq_store",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)

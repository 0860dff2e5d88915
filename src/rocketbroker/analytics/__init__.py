"""PySpark data sources, jobs and reports over store files.

The names below load what they need on first use: pyspark and pyarrow are heavy, and come with the extra ``analytics``.
"""

from typing import TYPE_CHECKING

from rocketbroker.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketbroker.analytics.columns.decode_report import DecodeReport as DecodeReport
    from rocketbroker.analytics.columns.selection import Selection as Selection
    from rocketbroker.analytics.files.store_names import store_roots as store_roots
    from rocketbroker.analytics.files.store_root import StoreRoot as StoreRoot
    from rocketbroker.analytics.jobs.audit import audit as audit
    from rocketbroker.analytics.jobs.compare import compare as compare
    from rocketbroker.analytics.jobs.export import export as export
    from rocketbroker.analytics.jobs.message_count import TopicQueueCount as TopicQueueCount
    from rocketbroker.analytics.jobs.message_count import count_locally as count_locally
    from rocketbroker.analytics.jobs.message_count import count_messages as count_messages
    from rocketbroker.analytics.jobs.message_jobs import delays as delays
    from rocketbroker.analytics.jobs.message_jobs import hot_keys as hot_keys
    from rocketbroker.analytics.jobs.message_jobs import lag as lag
    from rocketbroker.analytics.jobs.message_jobs import retries as retries
    from rocketbroker.analytics.jobs.message_jobs import retry_delays as retry_delays
    from rocketbroker.analytics.jobs.message_jobs import sizes as sizes
    from rocketbroker.analytics.jobs.message_jobs import skew as skew
    from rocketbroker.analytics.jobs.message_jobs import traffic as traffic
    from rocketbroker.analytics.jobs.scope import Scope as Scope
    from rocketbroker.analytics.jobs.search import Pattern as Pattern
    from rocketbroker.analytics.jobs.search import search as search
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
    "Pattern": ".jobs.search",
    "Scope": ".jobs.scope",
    "Selection": ".columns.selection",
    "StoreRoot": ".files.store_root",
    "TableOptions": ".tables.table",
    "TopicQueueCount": ".jobs.message_count",
    "audit": ".jobs.audit",
    "compare": ".jobs.compare",
    "count_locally": ".jobs.message_count",
    "count_messages": ".jobs.message_count",
    "create_views": ".spark.rocketmq_store",
    "delays": ".jobs.message_jobs",
    "encode_selection": ".spark.source_options",
    "export": ".jobs.export",
    "from_body": ".spark.from_body",
    "hot_keys": ".jobs.message_jobs",
    "lag": ".jobs.message_jobs",
    "messages": ".spark.rocketmq_store",
    "read_store": ".log.message_reader",
    "read_table": ".tables.table_reader",
    "register": ".spark.rocketmq",
    "retries": ".jobs.message_jobs",
    "retry_delays": ".jobs.message_jobs",
    "search": ".jobs.search",
    "sizes": ".jobs.message_jobs",
    "skew": ".jobs.message_jobs",
    "spark_session": ".spark.local_session",
    "store_roots": ".files.store_names",
    "table": ".spark.rocketmq_store",
    "traffic": ".jobs.message_jobs",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)

"""The table ``topics``: ``config/topics.json``."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.tables.config_file import load_config_file
from rocketbroker.analytics.tables.config_table import ConfigTable
from rocketbroker.analytics.tables.table import BROKER, TEXTS, field, select_by
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfigSerializeWrapper


class TopicsTable(ConfigTable):
    """One row per topic of a broker, system topics included."""

    name = "topics"
    comment = "a topic of a broker, as `config/topics.json` has it"
    schema = pa.schema(
        [
            BROKER,
            field("topic", pa.string(), "name of the topic"),
            field("read_queue_nums", pa.int32(), "queues that consumers read"),
            field("write_queue_nums", pa.int32(), "queues that producers send to"),
            field("perm", pa.int32(), "bits of what is permitted: 4 read, 2 write, 1 inherit"),
            field("topic_filter_type", pa.string(), "SINGLE_TAG or MULTI_TAG"),
            field("topic_sys_flag", pa.int32(), "bits of TopicSysFlag"),
            field("order", pa.bool_(), "whether the topic is an ordered one"),
            field("attributes", TEXTS, "its attributes, such as message.type"),
        ]
    )
    selects = select_by("topic")

    def rows(self, folder: StoreFolder) -> Iterator[Mapping[str, Any]]:
        """Yield the topics by name."""
        file = load_config_file(folder, "topics.json", TopicConfigSerializeWrapper)
        for name, topic in sorted(file.topic_config_table.items()):
            yield {
                "topic": name,
                "read_queue_nums": topic.read_queue_nums,
                "write_queue_nums": topic.write_queue_nums,
                "perm": topic.perm,
                "topic_filter_type": topic.topic_filter_type.value,
                "topic_sys_flag": topic.topic_sys_flag,
                "order": topic.order,
                "attributes": list(topic.attributes.items()),
            }

"""The table ``consumer_offsets``: ``config/consumerOffset.json``."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.tables.config_file import load_config_file
from rocketbroker.analytics.tables.config_table import ConfigTable
from rocketbroker.analytics.tables.table import BROKER, field, select_by
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper

_SEPARATOR = "@"


class ConsumerOffsetsTable(ConfigTable):
    """One row per queue and group with an offset."""

    name = "consumer_offsets"
    comment = "how far a group has consumed a queue, as `config/consumerOffset.json` has it"
    schema = pa.schema(
        [
            BROKER,
            field("group_name", pa.string(), "name of the group"),
            field("topic", pa.string(), "topic of the queue"),
            field("queue_id", pa.int32(), "queue within the topic"),
            field("consumer_offset", pa.int64(), "queue offset that the group consumes next, null if none is kept"),
            field("pull_offset", pa.int64(), "queue offset that it pulls next, null if none is kept"),
        ]
    )
    selects = select_by("topic", "queue_id")

    def rows(self, folder: StoreFolder) -> Iterator[Mapping[str, Any]]:
        """Yield the offsets by topic, group and queue."""
        file = load_config_file(folder, "consumerOffset.json", ConsumerOffsetSerializeWrapper)
        pulled = file.pull_offset_table or {}
        for name in sorted({*file.offset_table, *pulled}):
            topic, _, group = name.partition(_SEPARATOR)
            consumed_to, pulled_to = file.offset_table.get(name, {}), pulled.get(name, {})
            for queue_id in sorted({*consumed_to, *pulled_to}):
                yield {
                    "group_name": group or None,
                    "topic": topic,
                    "queue_id": queue_id,
                    "consumer_offset": consumed_to.get(queue_id),
                    "pull_offset": pulled_to.get(queue_id),
                }

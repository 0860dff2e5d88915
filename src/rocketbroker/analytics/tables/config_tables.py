"""Tables whose rows are in a file of ``config/``: topics, subscription groups and consumer offsets."""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from rocketbroker.analytics.columns.message_schema import TEXTS, field
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.table import BROKER, Rows, Table, TableOptions, chosen, root_folder, select_by
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from rocketbroker.codec.storefile.config_tables import BACKUP, MAX_CONFIG_SIZE, decode_table
from rocketbroker.common.atomic_file import both_faults, parsed
from rocketbroker.common.errors import StoreError

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=RemotingSerializable)


def load_config_file(folder: StoreFolder, name: str, kind: type[T]) -> T:
    """Read ``config/<name>`` as ``kind``.

    If the file is missing, empty or damaged, log a warning and read its ``.bak``. If neither exists, log that too and
    return an empty table, as a broker would use.

    Raises:
        StoreError: file or backup exists, but neither can be read.
    """
    found, damage = _read(folder, name, kind)
    if found is not None:
        return found
    path = folder.name_of(f"config/{name}")
    backup, backup_damage = _read(folder, name + BACKUP, kind)
    if backup is not None:
        logger.warning("%s; its backup %s%s is read instead", damage or f"{path} is missing", name, BACKUP)
        return backup
    if damage or backup_damage:
        faults = both_faults(path, damage, name + BACKUP, backup_damage)
        raise StoreError(f"{faults}: repair the file, or let the broker write it again")
    logger.warning("%s and its backup are missing; its table is empty", path)
    return kind()


def _read(folder: StoreFolder, name: str, kind: type[T]) -> tuple[T | None, str]:
    """Return the table in a file, or the fault of the file, "" if it does not exist."""
    data = folder.read_if_there(f"config/{name}", 0, MAX_CONFIG_SIZE + 1)  # the decoder rejects a longer file
    if data is None:
        return None, ""
    return parsed(folder.name_of(f"config/{name}"), data, partial(decode_table, name, kind=kind))


_SEPARATOR = "@"


class ConfigTable(Table):
    """A table of one part per store, with few rows."""

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[StoreRoot]:
        for store in stores:
            root_folder(store)  # reports a place that is not a store at once
        return list(stores)

    def read(self, part: StoreRoot, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a store in one batch."""
        rows = [{"broker": part.broker, **row} for row in self.rows(root_folder(part))]
        if rows:
            batch = pa.RecordBatch.from_pylist(rows, self.schema)
            columns = dict(zip(self.schema.names, batch.columns, strict=True))
            yield chosen(Rows(len(rows), columns), self.selects, selection, schema)

    @abstractmethod
    def rows(self, folder: StoreFolder) -> Iterator[Mapping[str, Any]]:
        """Return the rows of a store by column, without ``broker``; a missing column is null."""

    def _fields_of(self, config: Any) -> dict[str, Any]:
        """Return the columns that are fields of ``config``."""
        found = {name: getattr(config, name) for name in self.schema.names if hasattr(config, name)}
        return found | {"attributes": list(config.attributes.items())}


class TopicsTable(ConfigTable):
    """One row per topic of a broker, system topics included."""

    name = "topics"
    comment = "a topic in a broker's `config/topics.json`"
    schema = pa.schema(
        [
            BROKER,
            field("topic", pa.string(), "name of the topic"),
            field("read_queue_nums", pa.int32(), "number of queues that consumers read"),
            field("write_queue_nums", pa.int32(), "number of queues that producers send to"),
            field("perm", pa.int32(), "permission bits: 4 read, 2 write, 1 inherit"),
            field("topic_filter_type", pa.string(), "SINGLE_TAG or MULTI_TAG"),
            field("topic_sys_flag", pa.int32(), "bits of TopicSysFlag"),
            field("order", pa.bool_(), "true for an ordered topic"),
            field("attributes", TEXTS, "attributes by name, such as queue.type"),
        ]
    )
    selects = select_by("topic")

    def rows(self, folder: StoreFolder) -> Iterator[Mapping[str, Any]]:
        file = load_config_file(folder, "topics.json", TopicConfigSerializeWrapper)
        for name, topic in sorted(file.topic_config_table.items()):
            yield {**self._fields_of(topic), "topic": name}


class SubscriptionGroupsTable(ConfigTable):
    """One row per consumer group of a broker."""

    name = "subscription_groups"
    comment = "a consumer group in a broker's `config/subscriptionGroup.json`"
    schema = pa.schema(
        [
            BROKER,
            field("group_name", pa.string(), "name of the group"),
            field("consume_enable", pa.bool_(), "true if it may consume"),
            field("consume_from_min_enable", pa.bool_(), "true if a new group may start at the lowest offset"),
            field("consume_broadcast_enable", pa.bool_(), "true if it may consume by broadcast"),
            field("consume_message_orderly", pa.bool_(), "true if it consumes in order"),
            field("retry_queue_nums", pa.int32(), "number of queues of its retry topic"),
            field("retry_max_times", pa.int32(), "retries before a message becomes a dead letter"),
            field("retry_policy_type", pa.string(), "policy that sets the delays between retries"),
            field("broker_id", pa.int64(), "broker id that it consumes from"),
            field("which_broker_when_consume_slowly", pa.int64(), "broker id that it consumes from while it lags"),
            field("notify_consumer_ids_changed_enable", pa.bool_(), "true if consumers learn of changes in the group"),
            field("group_sys_flag", pa.int32(), "bits of the group's system flag"),
            field("consume_timeout_minute", pa.int32(), "longest time to consume one message, in minutes"),
            field("attributes", TEXTS, "attributes by name"),
        ]
    )
    selects = select_by()

    def rows(self, folder: StoreFolder) -> Iterator[Mapping[str, Any]]:
        file = load_config_file(folder, "subscriptionGroup.json", SubscriptionGroupWrapper)
        for name, group in sorted(file.subscription_group_table.items()):
            policy = group.group_retry_policy.type.value
            yield {**self._fields_of(group), "group_name": name, "retry_policy_type": policy}


class ConsumerOffsetsTable(ConfigTable):
    """One row per queue and group with an offset."""

    name = "consumer_offsets"
    comment = "the progress of a group in a queue, from `config/consumerOffset.json`"
    schema = pa.schema(
        [
            BROKER,
            field("group_name", pa.string(), "name of the group"),
            field("topic", pa.string(), "topic of the queue"),
            field("queue_id", pa.int32(), "queue within the topic"),
            field("consumer_offset", pa.int64(), "queue offset that the group consumes next, null without one"),
            field("pull_offset", pa.int64(), "queue offset that it pulls next, null without one"),
        ]
    )
    selects = select_by("topic", "queue_id")

    def rows(self, folder: StoreFolder) -> Iterator[Mapping[str, Any]]:
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

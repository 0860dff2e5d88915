"""Rows of a data frame as messages to send."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from rocketbroker.client.core.errors import InvalidMessageError, TopicRouteError
from rocketbroker.client.core.message import Message, check_message
from rocketbroker.client.producer.message_sender import QueueSelector, select_by_hash
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import ConfigError, RocketBrokerError

#: User property with the id of a message, the same when a task or a micro-batch is run again.
MESSAGE_ID: Final = "SPARK_MESSAGE_ID"

_INT: Final = ("int", "smallint", "tinyint")
#: Columns that a written data frame may have, with their types.
SINK_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "keys": ("string", "array<string>"),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "flag": _INT,
    "delay_time_level": _INT,
    "delay_time_ms": ("bigint", *_INT),
    "deliver_time_ms": ("bigint", "timestamp"),
    "sharding_key": ("string",),
    "queue_id": _INT,
    "broker": ("string",),
}


class RowError(RocketBrokerError):
    """A row cannot be sent; the text names it and says why."""


class MessageRow(NamedTuple):
    """A row as a message: rows with equal ``order_key`` are sent in order; None leaves queue and order open."""

    number: int
    message: Message
    queue: QueueSelector | None
    order_key: Hashable | None


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of a data frame to write; ``topic`` is the one of all rows, if any.

    Names may be in any case, as in Spark.

    Raises:
        ConfigError: a column is unknown, missing, named twice or of another type.
    """
    allowed = ", ".join(f"{name} {' or '.join(kinds)}" for name, kinds in SINK_COLUMNS.items())
    for column in schema:
        kinds, kind = SINK_COLUMNS.get(column.name.lower()), column.dataType.simpleString()
        if kinds is None:
            raise ConfigError(
                f"column {column.name} is unknown; select or rename columns to those of a message: {allowed}"
            )
        if kind not in kinds:
            raise ConfigError(f"column {column.name} is of type {kind}; cast it to {' or '.join(kinds)}")
    names = [name.lower() for name in schema.names]
    if len(set(names)) != len(names):
        raise ConfigError(f"a column is named twice in {', '.join(schema.names)}; drop or rename one")
    if "body" not in names:
        raise ConfigError(f"column body is missing; the columns of a message are {allowed}")
    if topic is None and "topic" not in names:
        raise ConfigError("column topic is missing; add it, or give the option topic")
    if "broker" in names and "queue_id" not in names:
        raise ConfigError("column broker needs column queue_id; add it, or drop broker")


def message_rows(batch: pa.RecordBatch, topic: str | None, id_prefix: str, first: int) -> Iterator[MessageRow]:
    """Yield the rows of a batch, numbered from ``first``; the id of a message is ``id_prefix`` and its number.

    Raises:
        RowError: a row is no message that can be sent.
    """
    columns = {name.lower(): _values(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    if topic is not None:
        columns["topic"] = [topic] * batch.num_rows
    for number, values in enumerate(zip(*columns.values(), strict=True), first):
        fields = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        try:
            yield _message_row(fields, number, f"{id_prefix}:{number}")
        except InvalidMessageError as error:
            raise row_error(number, fields.get("topic"), error) from error


def row_error(number: int, topic: str | None, error: Exception) -> RowError:
    """Return an error that names the row that it is about."""
    return RowError(f"row {number} of the partition (topic {topic or 'null'}): {error}")


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [None if value is None else value // 1000 for value in column.cast(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def _message_row(fields: dict[str, Any], number: int, message_id: str) -> MessageRow:
    topic, body = fields.get("topic"), fields.get("body")
    if topic is None or body is None:
        raise InvalidMessageError(f"{'topic' if topic is None else 'body'} is null; filter such rows, or fill it")
    queue_id, broker = fields.pop("queue_id", None), fields.pop("broker", None)
    if isinstance(body, str):
        fields["body"] = body.encode()
    if isinstance(fields.get("keys"), list):
        fields["keys"] = tuple(fields["keys"])
    fields["properties"] = {**dict(fields.get("properties", ())), MESSAGE_ID: message_id}
    message = Message(**fields)
    check_message(message)
    if queue_id is not None:
        if queue_id < 0:
            raise InvalidMessageError(f"queue_id is {queue_id}; give a whole number from 0")
        return MessageRow(number, message, partial(_queue, broker, queue_id), (topic, queue_id))
    if broker is not None:
        raise InvalidMessageError(f"broker is {broker} and queue_id is null; give both, or queue_id alone")
    if message.sharding_key:
        key = message.sharding_key
        return MessageRow(number, message, select_by_hash(key), (topic, key))
    return MessageRow(number, message, None, None)


def _queue(broker: str | None, queue_id: int, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    found = [queue for queue in queues if queue.queue_id == queue_id and broker in {None, queue.broker_name}]
    if len(found) != 1:
        known = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
        wanted = f"{broker}:{queue_id}" if broker else f"queue {queue_id}"
        text, end = f"{wanted} of topic {message.topic}", f"Its queues are {known}"
        if found:
            raise InvalidMessageError(f"{text} is at several brokers; set column broker as well. {end}")
        # Or its broker has left the routes, and may return.
        raise TopicRouteError(f"{text} does not exist. {end}")
    return found[0]

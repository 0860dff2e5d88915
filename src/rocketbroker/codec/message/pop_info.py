"""Names and texts of POP consumption (ExtraInfoUtil, KeyBuilder, PopAckConstants).

    handle             := ck_offset pop_time invisible_time revive_qid retry broker queue_id queue_offset [rest]
    start_offset_info  := retry queue_id offset              joined by ';'
    msg_offset_info    := retry queue_id offset,offset,...   joined by ';'
    order_count_info   := retry ('qo' queue_id '%' offset | queue_id) count   joined by ';'

A space separates the fields. ``retry`` says which topic stores the message: 0 the topic itself, 1 and 2 the group's
retry topic for it, by version of its name. Proxies append the CommitLog offset to a handle.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rocketbroker.codec.message.topic_validator import (
    CID_RMQ_SYS_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
)
from rocketbroker.common.errors import CodecError, shown

#: Queue id of a pop from all queues of a topic.
ALL_QUEUES: Final = -1
#: Instead of a revive queue, in handles of messages that are consumed in order (POP_ORDER_REVIVE_QUEUE).
REVIVE_QUEUE_ORDERLY: Final = 999
#: With the name of a cluster: the topic that stores its check points and acknowledgements (REVIVE_TOPIC).
REVIVE_TOPIC_PREFIX: Final = f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_"
#: Group that reads the revive topic.
REVIVE_GROUP: Final = f"{CID_RMQ_SYS_PREFIX}REVIVE_GROUP"

RETRY_NONE: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"

_RETRY_SEPARATORS: Final = {1: "_", 2: "+"}
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
# Handles whose numbers need no check; all others are taken apart field by field.
_USUAL_HANDLE: Final = re.compile(
    r"(-?[0-9]{1,18}) (-?[0-9]{1,18}) (-?[0-9]{1,18}) (-?[0-9]{1,9}) ([012]) ([^ ]*) (-?[0-9]{1,9}) (-?[0-9]{1,18})"
    r"(?: [^ ]*){0,2}"
)
_INT_LIMIT: Final = 2**31
_LONG_LIMIT: Final = 2**63


def revive_topic(cluster: str) -> str:
    """Return the revive topic of a cluster (buildClusterReviveTopic)."""
    return f"{REVIVE_TOPIC_PREFIX}{cluster}"


def pop_retry_topic(topic: str, group: str, version: int = 1) -> str:
    """Return the topic from which ``group`` receives messages of ``topic`` again (buildPopRetryTopic)."""
    return f"{RETRY_GROUP_TOPIC_PREFIX}{group}{_RETRY_SEPARATORS[version]}{topic}"


def pop_retry_topics(topic: str, group: str) -> list[str]:
    """Return the names that ``pop_retry_topic`` has had, oldest version first."""
    return [pop_retry_topic(topic, group, version) for version in _RETRY_SEPARATORS]


def normal_topic(topic: str, group: str) -> str:
    """Return the topic of which ``topic`` is the group's retry topic, else ``topic`` itself (parseNormalTopic)."""
    for prefix in pop_retry_topics("", group):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def retry_flag(topic: str, group: str) -> str:
    """Return the ``retry`` of a handle for a message that ``topic`` stores."""
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return RETRY_NONE
    return RETRY_V2 if topic.startswith(pop_retry_topic("", group, 2)) else RETRY_V1


def real_topic(topic: str, group: str, retry: str) -> str:
    """Return the topic that stores a message of ``topic``.

    Raises:
        CodecError: ``retry`` is not 0, 1 or 2.
    """
    _check_retry(retry)
    return topic if retry == RETRY_NONE else pop_retry_topic(topic, group, int(retry))


class ExtraInfo(NamedTuple):
    """Handle of a delivered message, property ``POP_CK``; times in ms. Its check point starts at ck_queue_offset."""

    ck_queue_offset: int
    pop_time: int
    invisible_time: int
    revive_qid: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int

    def encode(self) -> str:
        """Return the text of the handle."""
        return " ".join(map(str, self))

    @property
    def is_order(self) -> bool:
        """True if the message is consumed in order."""
        return self.revive_qid == REVIVE_QUEUE_ORDERLY


def decode_extra_info(text: str) -> ExtraInfo:
    """Return the handle with this text; further fields of proxies are ignored.

    Proxies append the message's CommitLog offset, and Apache's a 0 before it once they changed the invisible time.

    Raises:
        CodecError: The number of fields, a number or ``retry`` is wrong.
    """
    usual = _USUAL_HANDLE.fullmatch(text)
    if usual is not None:
        start, pop_time, invisible_time, revive_qid, retry, broker, queue_id, offset = usual.groups()
        times = int(pop_time), int(invisible_time)
        return ExtraInfo(int(start), *times, int(revive_qid), retry, broker, int(queue_id), int(offset))
    return decode_fields(text)


def decode_fields(text: str) -> ExtraInfo:
    """Return the handle with this text, read field by field.

    Raises:
        CodecError: As ``decode_extra_info``.
    """
    fields = text.split(" ")
    if not 8 <= len(fields) <= 10:
        raise CodecError(f"extraInfo {shown(text)!r}: expected 8 to 10 fields instead of {len(fields)}")
    try:
        _check_retry(fields[4])
        return ExtraInfo(
            _long(fields[0]),
            _long(fields[1]),
            _long(fields[2]),
            _int(fields[3]),
            fields[4],
            fields[5],
            _int(fields[6]),
            _long(fields[7]),
        )
    except CodecError as error:
        raise CodecError(f"extraInfo {shown(text)!r}: {error}") from None


class PoppedQueue(NamedTuple):
    """Queue of an answer to POP_MESSAGE, as its texts name it."""

    retry: str
    queue_id: int


class OrderCountKey(NamedTuple):
    """Message of an answer to POP_MESSAGE; None for ``offset``: the least of its queue, which old clients read."""

    retry: str
    queue_id: int
    offset: int | None


def start_offset_entry(retry: str, queue_id: int, offset: int) -> str:
    """Return the entry of a queue in ``start_offset_info``: where its check point starts."""
    return f"{retry} {queue_id} {offset}"


def msg_offset_entry(retry: str, queue_id: int, offsets: Sequence[int]) -> str:
    """Return the entry of a queue in ``msg_offset_info``: offsets of its messages, at least one."""
    return f"{retry} {queue_id} {','.join(map(str, offsets))}"


def order_count_entries(retry: str, queue_id: int, counts: Mapping[int, int]) -> list[str]:
    """Return the entries of a queue in ``order_count_info``.

    ``counts`` says for each message of the answer, by offset, how often it was delivered before. Offsets whose count is
    0 have no entry of their own.
    """
    by_offset = [f"{retry} qo{queue_id}%{offset} {count}" for offset, count in counts.items() if count]
    return [*by_offset, f"{retry} {queue_id} {min(counts.values())}"]


def parse_start_offset_info(text: str) -> dict[PoppedQueue, int]:
    """Return the start of the check point of each queue.

    Raises:
        CodecError: An entry is wrong, or a queue has two.
    """
    starts: dict[PoppedQueue, int] = {}
    for retry, queue_id, offset in _entries("startOffsetInfo", text):
        queue = PoppedQueue(retry, _int(queue_id))
        _check_absent("startOffsetInfo", queue, starts)
        starts[queue] = _long(offset)
    return starts


def parse_msg_offset_info(text: str) -> dict[PoppedQueue, list[int]]:
    """Return the offsets of the messages of each queue.

    Raises:
        CodecError: An entry is wrong, or a queue has two.
    """
    messages: dict[PoppedQueue, list[int]] = {}
    for retry, queue_id, offsets in _entries("msgOffsetInfo", text):
        queue = PoppedQueue(retry, _int(queue_id))
        _check_absent("msgOffsetInfo", queue, messages)
        messages[queue] = [_long(offset) for offset in offsets.split(",")]
    return messages


def parse_order_count_info(text: str) -> dict[OrderCountKey, int]:
    """Return how often messages were delivered before.

    Raises:
        CodecError: An entry is wrong, or a message has two.
    """
    counts: dict[OrderCountKey, int] = {}
    for retry, name, count in _entries("orderCountInfo", text):
        queue_id, at, offset = name.removeprefix("qo").partition("%")
        if name.startswith("qo") != bool(at):
            raise CodecError(f"orderCountInfo: expected qo<queueId>%<offset> or a queueId instead of {shown(name)!r}")
        key = OrderCountKey(retry, _int(queue_id), _long(offset) if at else None)
        _check_absent("orderCountInfo", key, counts)
        counts[key] = _int(count)
    return counts


def _entries(name: str, text: str) -> list[tuple[str, str, str]]:
    entries = []
    for entry in text.split(";") if text else ():
        fields = entry.split(" ")
        if len(fields) != 3:
            raise CodecError(f"{name}: expected 3 fields instead of {len(fields)} in {shown(entry)!r}")
        _check_retry(fields[0])
        entries.append((fields[0], fields[1], fields[2]))
    return entries


def _check_absent(name: str, key: tuple[object, ...], table: Mapping[Any, object]) -> None:
    if key in table:
        raise CodecError(f"{name}: second entry for {key}")


def _check_retry(retry: str) -> None:
    if retry not in (RETRY_NONE, RETRY_V1, RETRY_V2):
        raise CodecError(f"retry {shown(retry)!r}: expected 0, 1 or 2")


def _int(text: str) -> int:
    return _number(text, _INT_LIMIT)


def _long(text: str) -> int:
    return _number(text, _LONG_LIMIT)


def _number(text: str, limit: int) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else limit
    if not -limit <= number < limit:
        raise CodecError(f"{shown(text)!r} is not a number from {-limit} to {limit - 1}")
    return number

"""Messages and offsets as the brokers hold them, read without a client, and texts of assertions about them."""

import difflib
from collections.abc import Collection, Mapping, Sequence

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import DevBroker
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue

_ENTRIES_AT_A_TIME = 1024


async def stored_messages(brokers: Collection[DevBroker], topic: str) -> list[MessageExt]:
    """Read all messages of a topic, in the order in which they were stored."""
    found = [message for broker in _running(brokers) for message in await _messages(broker, topic)]
    return sorted(found, key=lambda message: (message.store_timestamp, message.commit_log_offset))


async def _messages(broker: BrokerController, topic: str) -> list[MessageExt]:
    reader = broker.store.entry_reader
    messages: list[MessageExt] = []
    for queue in broker.store.queues.queues_of(topic).values():
        offset = queue.min_offset
        while offset < queue.max_offset:
            entries = reader.entries(queue, offset, _ENTRIES_AT_A_TIME)
            if not entries:
                break
            messages += [decode_record(record) for record in await reader.records(queue, entries)]
            offset = entries[-1][0] + 1
    return messages


def end_offsets(brokers: Collection[DevBroker], topic: str) -> dict[MessageQueue, tuple[int, int]]:
    """Return the offset of the first message and the one after the last, by queue."""
    return {
        MessageQueue(topic, broker.name, queue_id): (queue.min_offset, queue.max_offset)
        for broker in brokers
        if broker.is_running
        for queue_id, queue in broker.controller.store.queues.queues_of(topic).items()
    }


def committed_offsets(brokers: Collection[DevBroker], group: str, topic: str) -> dict[MessageQueue, int]:
    """Return the committed offsets of a group by queue."""
    return {
        MessageQueue(topic, broker.name, queue_id): offset
        for broker in brokers
        if broker.is_running
        for queue_id, offset in broker.controller.consumer_offsets.offsets_of(group, topic).items()
    }


def _running(brokers: Collection[DevBroker]) -> list[BrokerController]:
    return [broker.controller for broker in brokers if broker.is_running]


_LONGEST_BODY = 100


def message_difference(what: str, expected: Sequence[bytes], found: Sequence[MessageExt]) -> str:
    """Return the difference between expected bodies and stored messages, line by line; empty if there is none."""
    if [message.body for message in found] == list(expected):
        return ""
    actual = {_shown(message.body): _place(message) for message in found}
    lines = [f"{what}: {len(expected)} expected (-), {len(found)} found (+)"]
    for line in difflib.ndiff([_shown(body) for body in expected], [_shown(message.body) for message in found]):
        mark, body = line[:2], line[2:]
        if mark != "? ":
            lines.append(f"{mark}{body}{actual[body] if mark == '+ ' else ''}")
    return "\n".join(lines)


def lag_difference(
    group: str, expected: int, ends: Mapping[MessageQueue, tuple[int, int]], committed: Mapping[MessageQueue, int]
) -> str:
    """Return the lag of a group by queue, if it is not the expected one; else an empty text."""
    lag = total_lag(ends, committed)
    if lag == expected:
        return ""
    lines = [f"lag of group {group}: {expected} expected, {lag} found"]
    for queue in sorted(ends, key=lambda each: (each.topic, each.broker_name, each.queue_id)):
        begin, end = ends[queue]
        lines.append(
            f"  {queue.topic} {queue.broker_name} queue {queue.queue_id}: "
            f"committed {committed.get(queue, 'nothing')}, messages {begin} to {end}"
        )
    return "\n".join(lines)


def total_lag(ends: Mapping[MessageQueue, tuple[int, int]], committed: Mapping[MessageQueue, int]) -> int:
    """Return how many messages a group has not committed; without an offset it has committed nothing."""
    return sum(end - max(committed.get(queue, begin), begin) for queue, (begin, end) in ends.items())


def offset_difference(
    group: str, topic: str, expected: Mapping[int, int], committed: Mapping[MessageQueue, int]
) -> str:
    """Return the offsets of a group by queue id, if they are not the expected ones; else an empty text."""
    found = {queue.queue_id: offset for queue, offset in committed.items()}
    if found == dict(expected):
        return ""
    lines = [f"offsets of group {group} in {topic}:"]
    for queue_id in sorted(found.keys() | expected.keys()):
        wanted, actual = expected.get(queue_id, "none"), found.get(queue_id, "none")
        if wanted != actual:
            lines.append(f"  queue {queue_id}: {wanted} expected, {actual} found")
    return "\n".join(lines)


def _shown(body: bytes) -> str:
    text = repr(body[:_LONGEST_BODY])
    return text if len(body) <= _LONGEST_BODY else f"{text}... ({len(body):,} bytes)"


def _place(message: MessageExt) -> str:
    extra = "".join(f" {name}={value!r}" for name, value in (("tags", message.tags), ("keys", message.keys)) if value)
    return f"  queue {message.queue_id} offset {message.queue_offset}{extra}"

"""Messages and offsets as the brokers hold them, read without a client."""

from collections.abc import Collection

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.dev_broker import DevBroker
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue

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

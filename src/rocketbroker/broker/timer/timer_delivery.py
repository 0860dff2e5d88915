"""Delivery of one slot of the timer (TimerDequeueGetMessageService, TimerDequeuePutMessageService)."""

import logging
from collections.abc import Callable

from rocketbroker.broker.longpolling.waiting_message import WaitingMessage, WaitingMessages
from rocketbroker.broker.schedule.schedule_message_service import DELAY_FOR_A_WHILE_S
from rocketbroker.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.timer.timer_requests import delete_key, key_of, rolled, stamped, timer_request
from rocketbroker.broker.timer.timer_wheel import Slot
from rocketbroker.broker.topic.system_topics import TIMER_TOPIC
from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.common.clock import Clock
from rocketbroker.store.commitlog.put_message import PERMANENT_FAILURES, MessageExtBrokerInner, PutMessageStatus
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.entry_reader import EntryReader

log = logging.getLogger(__name__)

# Messages delivered before the loop serves others.
BATCH = 64


class TimerDelivery:
    """Delivers the messages of due slots; ``count`` counts the stored copies, ``precision_ms`` is the width of a slot.

    Args:
        appender: stores the copies.
        entry_reader: reads the records.
        waiting: decodes the records.
        clock: dates the copies.
        stats: counts the copies.
        advance: called after each batch with the slot time in ms, the slot, and the queue offset before which it is
            delivered.
    """

    def __init__(
        self,
        appender: MessageAppender,
        entry_reader: EntryReader,
        waiting: WaitingMessages,
        clock: Clock,
        stats: BrokerStatsManager,
        advance: Callable[[int, Slot, int], None],
    ) -> None:
        self._appender = appender
        self._entry_reader = entry_reader
        self._waiting = waiting
        self._clock = clock
        self._stats = stats
        self._advance = advance
        self.precision_ms = 0
        self.count = 0

    async def deliver_batch(self, queue: ConsumeQueueInterface, slot_ms: int, slot: Slot) -> float:
        """Deliver a batch of a slot's messages; return the seconds until the next batch.

        Raises:
            StoreError: The disk cannot be read.
        """
        if not await self._read_deletes(queue, slot_ms, slot):
            return DELAY_FOR_A_WHILE_S
        reader = self._entry_reader
        entries = reader.entries_at(queue, slot.messages[slot.done : slot.done + BATCH])
        records = await reader.records(queue, entries)
        if len(records) < len(entries):
            log.error("%s due timer messages are damaged or missing", len(entries) - len(records))
        delivered_to = slot.messages[slot.done] if entries else 0
        try:
            for record in records:
                found = self._waiting.read(record)
                delivered_to = found.queue_offset
                if not self._deliver(found, slot_ms, slot):
                    return DELAY_FOR_A_WHILE_S
            delivered_to = entries[-1][0] + 1 if entries else 0
        finally:
            self._advance(slot_ms, slot, delivered_to)
        return 0.0

    async def _read_deletes(self, queue: ConsumeQueueInterface, slot_ms: int, slot: Slot) -> bool:
        """Read the messages of a slot that cancel others; return false to retry."""
        reader = self._entry_reader
        while slot.deletes_read < len(slot.deletes):
            entries = reader.entries_at(queue, slot.deletes[slot.deletes_read : slot.deletes_read + BATCH])
            for record in await reader.records(queue, entries):
                found = self._waiting.read(record)
                properties = found.message.properties
                request = timer_request(properties, self._waiting.place(properties))
                if request is not None and request.out_ms > slot_ms:
                    if not self._roll(found):
                        return False
                else:
                    slot.deleted.add(delete_key(properties))
            slot.deletes_read += len(entries)
        return True

    def _deliver(self, found: WaitingMessage, slot_ms: int, slot: Slot) -> bool:
        """Put the message into its real topic, or roll it; return false to retry."""
        message = found.message
        place = self._waiting.place(message.properties)
        request = timer_request(message.properties, place)
        if place is None or request is None or (slot.deleted and key_of(message.properties) in slot.deleted):
            return True
        if request.out_ms > slot_ms:
            return self._roll(found)
        message.topic, message.queue_id = place
        # Searched in the properties before the stamp, which are the same in many messages.
        message.found = find_properties(message.properties)
        message.properties = self._stamped(found)
        return self._put(message)

    def _roll(self, found: WaitingMessage) -> bool:
        """Put a message that is not due yet into the timer's queue again; return false to retry."""
        message = found.message
        message.topic, message.queue_id = TIMER_TOPIC, 0
        message.properties = rolled(self._stamped(found))
        return self._put(message)

    def _stamped(self, found: WaitingMessage) -> bytes:
        return stamped(found.message.properties, found.store_timestamp, self.precision_ms, self._clock.time_ms())

    def _put(self, message: MessageExtBrokerInner) -> bool:
        result = self._appender.put_message(message)
        if result.status is PutMessageStatus.PUT_OK:
            self._stats.topic_put(message.topic).add(1, result.size)
            self.count += 1
            return True
        log.error("timer message for topic %s could not be stored: %s %s", message.topic, result.status, result.reason)
        return result.status in PERMANENT_FAILURES

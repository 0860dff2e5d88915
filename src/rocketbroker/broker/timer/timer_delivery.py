"""Delivery of the timer messages of due slots, and the rates of the timer (TimerMessageStore, PerfCounter)."""

import logging
from collections.abc import Callable, Sequence

from rocketbroker.broker.message_copy import Place
from rocketbroker.broker.schedule_message_service import DELAY_FOR_A_WHILE_S
from rocketbroker.broker.timer.timer_rewrite import delete_key, key_of, postponed, rolled, stamped, timer_request
from rocketbroker.broker.timer.timer_wheel import Slot
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.broker.waiting_messages import CopyDelivery, WaitingMessage, is_settled
from rocketbroker.codec.message.message_properties import (
    MAX_PROPERTIES_LENGTH,
    MAX_SENT_PROPERTIES_LENGTH,
    find_properties,
)
from rocketbroker.codec.message.raw_records import ExpectedRecord
from rocketbroker.common.clock import Clock
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

log = logging.getLogger(__name__)


class Rates:
    """Messages per second between the last two measurements."""

    def __init__(self) -> None:
        self.taken_in = self.delivered = 0.0
        self._last = (0.0, 0, 0)

    def measure(self, now_s: float, taken_in: int, delivered: int) -> None:
        """Compute the rates from two counters."""
        then_s, taken_in_then, delivered_then = self._last
        if then_s and now_s > then_s:
            self.taken_in = (taken_in - taken_in_then) / (now_s - then_s)
            self.delivered = (delivered - delivered_then) / (now_s - then_s)
        self._last = now_s, taken_in, delivered


# Messages delivered before the loop serves others.
BATCH = 64
# Further delay of a message that its queue has no room for; each costs a copy.
_POSTPONED_MS = 300_000


class TimerDelivery:
    """Delivers the messages of due slots.

    Progress covers all messages before a slot and an offset. So at a slave that sends to another master, all messages
    wait for its own master after one that the slave lacks or has damaged, and after one that is not due yet: its cancel
    would not find it at the other master.

    Args:
        advance: called after each batch with the slot time in ms, the slot, the queue offset before which it is
            delivered, and the topic of each message of the batch that needs no further try.

    Attributes:
        number: number of stored copies.
        precision_ms: width of a slot.
        waits_for_master: true once a slave may deliver nothing more.
    """

    def __init__(
        self, copies: CopyDelivery, clock: Clock, advance: Callable[[int, Slot, int, Sequence[str]], None]
    ) -> None:
        self._copies = copies
        self._clock = clock
        self._advance = advance
        self.precision_ms = 0
        self.number = 0
        self.waits_for_master = False

    def wait_for_master(self, why: str) -> None:
        """Deliver nothing more."""
        if not self.waits_for_master:
            self.waits_for_master = True
            log.error("timer messages wait for the master: %s", why)

    def wait_for_message(self, queue_offset: int) -> None:
        """Deliver nothing more, because this slave cannot read a message."""
        self.wait_for_master(f"this slave lacks message {queue_offset}, or has it damaged")

    async def read(
        self, queue: ConsumeQueueInterface, entries: Sequence[ExpectedRecord]
    ) -> tuple[list[WaitingMessage], int | None]:
        """Return the sound messages that entries name, as ``CopyDelivery.read`` does.

        Raises:
            StoreError: The disk cannot be read.
        """
        return await self._copies.read(queue, entries, "%d timer messages")

    async def deliver_batch(self, queue: ConsumeQueueInterface, slot_ms: int, slot: Slot) -> float:
        """Deliver a batch of a slot's messages; return the seconds until the next batch.

        Raises:
            StoreError: The disk cannot be read.
        """
        if not await self._read_deletes(queue, slot_ms, slot):
            return DELAY_FOR_A_WHILE_S
        copies = self._copies
        entries = copies.entry_reader.entries_at(queue, slot.messages[slot.done : slot.done + BATCH])
        messages, missing = await self.read(queue, entries)
        if not copies.may_deliver():
            return DELAY_FOR_A_WHILE_S
        delivered_to, put = slot.messages[slot.done] if entries else 0, copies.put
        topics: list[str] = []
        try:
            for found in messages:
                delivered_to = found.queue_offset
                place = copies.waiting.place(found.message.properties)
                copy = self._copy(found, place, slot_ms, slot)
                if copy is None:
                    topics += () if place is None else place[:1]
                    continue
                if self._is_early(copy):
                    return DELAY_FOR_A_WHILE_S
                result = put(copy)
                if not isinstance(result, PutMessageResult):
                    result = await result
                if not self._is_done(copy, result) and not self._postpone(copy, result):
                    return DELAY_FOR_A_WHILE_S
                topics += () if place is None else place[:1]
            if missing is None:
                delivered_to = entries[-1][0] + 1 if entries else 0
            else:
                delivered_to = missing
                self.wait_for_message(missing)
        finally:
            self._advance(slot_ms, slot, delivered_to, topics)
        return 0.0

    async def _read_deletes(self, queue: ConsumeQueueInterface, slot_ms: int, slot: Slot) -> bool:
        """Read the messages of a slot that cancel others; return false to retry."""
        copies = self._copies
        while slot.deletes_read < len(slot.deletes):
            cancels = slot.deletes[slot.deletes_read : slot.deletes_read + BATCH]
            entries = copies.entry_reader.entries_at(queue, cancels)
            messages, missing = await self.read(queue, entries)
            if not copies.may_deliver():
                return False
            if missing is not None:
                self.wait_for_message(missing)
                return False
            for found in messages:
                properties = found.message.properties
                request = timer_request(properties, copies.waiting.place(properties))
                if request is None or request.out_ms <= slot_ms:
                    slot.deleted.add(delete_key(properties))
                    continue
                copy = self._rolled(found)
                if self._is_early(copy):
                    return False
                result = copies.put(copy)
                if not isinstance(result, PutMessageResult):
                    result = await result
                if not self._is_done(copy, result):
                    return False
            slot.deletes_read += len(entries)
        return True

    def _copy(
        self, found: WaitingMessage, place: Place | None, slot_ms: int, slot: Slot
    ) -> MessageExtBrokerInner | None:
        """Return the copy for the real topic, or for the timer's own; ``None`` for a message without a delivery."""
        message = found.message
        request = timer_request(message.properties, place)
        if place is None or request is None or (slot.deleted and key_of(message.properties) in slot.deleted):
            return None
        if request.out_ms > slot_ms:
            return self._rolled(found)
        message.topic, message.queue_id = place
        # Searched in the properties before the stamp, which are the same in many messages.
        message.found = find_properties(message.properties)
        message.properties = self._stamped(found)
        return message

    def _postpone(self, copy: MessageExtBrokerInner, result: PutMessageResult) -> bool:
        """Set a later time for a message whose queue alone has no room; return false if it has to be retried."""
        if copy.topic == TIMER_TOPIC or not self._copies.may_postpone(result):
            return False
        copy.topic, copy.queue_id, copy.found = TIMER_TOPIC, 0, None
        copy.properties = rolled(postponed(copy.properties, self._clock.time_ms() + _POSTPONED_MS))
        return self._copies.store_again(copy)

    def _is_early(self, copy: MessageExtBrokerInner) -> bool:
        """Return true, and wait for the master, if a copy for another master is not due yet."""
        if not self._copies.escapes or copy.topic != TIMER_TOPIC:
            return False
        self.wait_for_master("one is due later than timerRollWindowSlot allows")
        return True

    def _rolled(self, found: WaitingMessage) -> MessageExtBrokerInner:
        """Return the copy for the timer's queue of a message that is not due yet."""
        message = found.message
        message.topic, message.queue_id = TIMER_TOPIC, 0
        stored = message.properties
        properties = rolled(self._stamped(found))
        message.properties = properties if len(properties) <= MAX_PROPERTIES_LENGTH else stored
        return message

    def _stamped(self, found: WaitingMessage) -> bytes:
        """Return the properties with the times of the timer.

        They are for people only: a message that lacks room for them is delivered without. Those of other brokers may,
        and those for another master, which takes them as sent ones.
        """
        stored = found.message.properties
        properties = stamped(stored, found.store_timestamp, self.precision_ms, self._clock.time_ms())
        limit = MAX_SENT_PROPERTIES_LENGTH if self._copies.escapes else MAX_PROPERTIES_LENGTH
        return properties if len(properties) <= limit else stored

    def _is_done(self, copy: MessageExtBrokerInner, result: PutMessageResult) -> bool:
        """Count a delivery, or log its failure; return false to retry."""
        topic = copy.topic
        if result.status is PutMessageStatus.PUT_OK:
            self._copies.count(topic, result)
            self.number += 1
            if topic != TIMER_TOPIC and self._copies.meters is not None:
                self._copies.meters.timer_delivered(topic, (self._clock.time_ms() - copy.born_timestamp) / 1000)
            return True
        log.error("timer message for topic %s could not be stored: %s %s", topic, result.status, result.reason)
        return is_settled(result)

"""Facts about one message in one group for ``mqadmin why``: what brokers, clients and the trace topic say.

Brokers are asked one by one. One that does not answer is noted, since the message may be at another. Copies of the
message in retry topics and the dead-letter queue are found by its unique id, which they keep.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import typer

from rocketbroker.app.mqadmin.dead_letters import RESENT_FROM
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.admin_connection import address_in
from rocketbroker.client.admin.message_admin import ReadableQueue
from rocketbroker.codec.message.message_const import PROPERTY_REAL_TOPIC, PROPERTY_RETRY_TOPIC, PROPERTY_TIMER_OUT_MS
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.pop_info import normal_topic, pop_retry_topics
from rocketbroker.codec.message.topic_validator import (
    CID_RMQ_SYS_PREFIX,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRACE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
)
from rocketbroker.codec.message.trace_data import SubAfterTrace, decode_traces
from rocketbroker.codec.remoting.bodies.client import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
    ProcessQueueInfo,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.offset import OffsetWrapper, TopicOffset
from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.bodies.topic_config import INDEX_PERM_READ, SubscriptionGroupConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.timer_slots import TIMER_TOPIC
from rocketbroker.common.errors import BrokerResponseError, CodecError, RocketBrokerError

_HALF_GROUP: Final = f"{CID_RMQ_SYS_PREFIX}TRANS"
# System topics that hold a message before its topic has it.
_WAITING_TOPICS: Final = (RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC)


class Copy(NamedTuple):
    """A copy in another topic.

    Attributes:
        message: the copy.
        progress: progress of the group in its queue, None if it is not known.
        due_ms: delivery time of a delayed copy, None if it is not known.
    """

    message: MessageExt
    progress: OffsetWrapper | None = None
    due_ms: int | None = None

    @property
    def is_passed(self) -> bool:
        """The group has committed an offset after the copy."""
        return self.progress is not None and self.progress.consumer_offset > self.message.queue_offset


class Copies(NamedTuple):
    """Copies of a message that was not consumed: delayed, in retry topics, dead, and sent again after that."""

    delayed: Sequence[Copy] = ()
    retried: Sequence[Copy] = ()
    dead: Sequence[Copy] = ()
    resent: Sequence[Copy] = ()

    @property
    def newest(self) -> Copy | None:
        """The copy that was stored last, None if there is none."""
        every = [*self.delayed, *self.retried, *self.dead, *self.resent]
        return max(every, key=lambda copy: copy.message.store_timestamp, default=None)


class Waiting(NamedTuple):
    """A message that its topic does not have yet: in the schedule, timer or half topic.

    Attributes:
        message: the message there.
        due_ms: delivery time, None for a half message and if the broker does not say it.
        is_ended: the broker has gone past the half message: it was rolled back or given up.
    """

    message: MessageExt
    due_ms: int | None = None
    is_ended: bool = False


class Facts(msgspec.Struct):
    """All that is known of the message and the group; times in ms.

    Attributes:
        wanted: key or id that was asked for.
        matching: number of messages with the key.
        broker: name and address of the broker that has the message.
        queue: the queue of the message, or None if there is no message.
        offset: offset of the message in the queue.
        bounds: first and next offset of the queue.
        message: the message, None if it is not stored any more.
        other: message of another topic that the id belongs to.
        waiting: the message, if its topic does not have it yet.
        config: the group at this broker, None if it has no such group.
        forbidden: the broker forbids the group to read the topic.
        clients: the clients of the group, None if none is connected.
        conflict: the broker's words on subscriptions that differ.
        running: what the clients that answer report.
        progress: progress of the group in the queue, None without one.
        copies: copies for retries.
        traces: ends of consumption that the trace topic has, oldest first.
        unanswered: a line for each broker that does not answer.
    """

    group: str
    topic: str
    wanted: str = ""
    matching: int = 0
    broker: str = ""
    address: str = ""
    queue: MessageQueue | None = None
    offset: int = -1
    bounds: tuple[int, int] = (0, 0)
    message: MessageExt | None = None
    other: MessageExt | None = None
    waiting: Waiting | None = None
    config: SubscriptionGroupConfig | None = None
    forbidden: bool = False
    clients: ConsumerConnection | None = None
    conflict: str = ""
    running: dict[str, ConsumerRunningInfo] = {}
    progress: OffsetWrapper | None = None
    copies: Copies = Copies()
    traces: list[SubAfterTrace] = []
    unanswered: list[str] = []

    @property
    def silent(self) -> list[str]:
        """Clients that do not report their state."""
        connected = self.clients.connection_set if self.clients else []
        return [each.client_id for each in connected if each.client_id not in self.running]

    @property
    def owner(self) -> str:
        """Client that consumes the queue, empty if none says so."""
        return next((client for client, info in self.running.items() if self.queue in info.mq_table), "")

    @property
    def held(self) -> ProcessQueueInfo | None:
        """The owner's report on the queue."""
        return self.running[self.owner].mq_table[self.queue] if self.owner and self.queue else None

    @property
    def pops(self) -> bool:
        """The group pops the queue."""
        kind = self.clients.consume_type if self.clients else None
        return kind is ConsumeType.CONSUME_POP or (
            self.progress is not None and self.progress.pop_in_flight is not None
        )

    def subscription_of(self, client: str) -> SubscriptionData | None:
        """Return the subscription of a client to the topic, None if the client does not report it."""
        info = self.running.get(client)
        return next((each for each in (info and info.subscription_set) or () if each.topic == self.topic), None)

    @property
    def expressions(self) -> dict[str, str]:
        """Expression of each client that reports its subscriptions, empty where it lacks the topic."""
        own = {client: self.subscription_of(client) for client, info in self.running.items() if info.subscription_set}
        return {
            client: f"{each.expression_type or 'TAG'} {each.sub_string}" if each else "" for client, each in own.items()
        }


async def find(
    admin: AdminClient, group: str, topic: str, *, key: str | None, msg_id: str | None, offset: str | None
) -> Facts:
    """Collect what is known of a message and a group.

    Raises:
        TopicRouteError: no name server knows the topic.
        RocketBrokerError: no broker of the topic answers.
        typer.BadParameter: ``offset`` is malformed, or names a queue that does not exist.
    """
    finder = _Finder(admin, Facts(group, topic))
    await finder.ask_brokers((await admin.examine_topic_route_info(topic)).broker_datas)
    facts = finder.facts
    if key is not None or msg_id is not None:
        facts.wanted = f"id {msg_id}" if msg_id is not None else f"key {key}"
        await finder.by_id(msg_id) if msg_id is not None else await finder.by_key(key or "")
        if facts.message is not None:
            facts.queue = await finder.queue_of(facts.message)
            facts.offset = facts.message.queue_offset
        elif facts.other is None:
            await finder.add_waiting(msg_id or key or "", "K" if msg_id is None else "U")
    elif offset is not None:
        facts.queue, facts.offset = at_offset(offset, sorted(finder.ends))
    else:
        facts.queue, facts.offset = next_of(finder.ends, finder.progress)
    if facts.queue is not None:
        await finder.add_group(facts.queue)
    return facts


class _Finder:
    """Asks the brokers of a topic that answer; ``ends`` are the offsets of their queues, ``progress`` the group's."""

    def __init__(self, admin: AdminClient, facts: Facts) -> None:
        self._admin = admin
        self.facts = facts
        self.addresses: dict[str, str] = {}
        self.ends: dict[MessageQueue, TopicOffset] = {}
        self.progress: dict[MessageQueue, OffsetWrapper] = {}

    async def ask_brokers(self, brokers: Sequence[BrokerData]) -> None:
        """Add the queues of the topic, and the progress of the group.

        Raises:
            RocketBrokerError: no broker answers.
        """
        failed: RocketBrokerError | None = None
        for data in brokers:
            for _, address in sorted(data.broker_addrs.items()):
                try:
                    stats = await self._admin.examine_topic_stats(self.facts.topic, addresses=[address])
                except RocketBrokerError as error:
                    failed = error
                    continue
                self.addresses[data.broker_name] = address
                self.ends |= stats.offset_table
                self.progress |= await self.progress_at(address, self.facts.topic)
                break
            else:
                reason = f": {failed}" if failed is not None else ""
                self.facts.unanswered.append(
                    f"Broker {data.broker_name} does not answer, so its queues are not known{reason}."
                )
        if not self.addresses and failed is not None:
            raise failed

    async def progress_at(self, address: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        """Return the progress of the group in the queues of a topic at a broker."""
        try:
            stats = await self._admin.examine_consume_stats(self.facts.group, topic, addresses=[address])
        except BrokerResponseError:
            return {}  # the broker does not know the group or the topic
        return stats.offset_table

    async def query(self, topic: str, text: str, index_type: str) -> list[MessageExt]:
        """Return the messages of any topic with a key or an id at the brokers that answer."""
        found: list[MessageExt] = []
        for address in self.addresses.values():
            try:
                found += await self._admin.query_message(topic, text, index_type=index_type, addresses=[address])
            except BrokerResponseError:
                continue  # this broker does not have the topic
        return sorted(found, key=lambda message: message.store_timestamp)

    async def by_key(self, key: str) -> None:
        """Add the newest message with a key."""
        found = await self.query(self.facts.topic, key, "K")
        self.facts.matching = len(found)
        self.facts.message = found[-1] if found else None

    async def by_id(self, msg_id: str) -> None:
        """Add the message with an id of broker or producer, or the message of another topic that has it."""
        found = await self._by_offset_id(msg_id)
        if found is None:
            messages = await self.query(self.facts.topic, msg_id, "U")
            self.facts.message = messages[0] if messages else None
            return
        topic, group = self.facts.topic, self.facts.group
        origins = {found.topic, normal_topic(found.topic, group), found.get_property(PROPERTY_RETRY_TOPIC)}
        if found.topic == topic:
            self.facts.message = found
        elif topic in origins and found.uniq_key:
            # A copy for a retry or a dead letter: the original has the same unique id.
            originals = await self.query(topic, found.uniq_key, "U")
            self.facts.message = originals[0] if originals else None
        elif found.get_property(PROPERTY_REAL_TOPIC) == topic and found.uniq_key:
            delivered = await self.query(topic, found.uniq_key, "U")
            self.facts.message = delivered[0] if delivered else None
            if not delivered:
                await self.add_waiting(found.uniq_key, "U")
        else:
            self.facts.other = found

    async def _by_offset_id(self, msg_id: str) -> MessageExt | None:
        try:
            address = address_in(msg_id)
        except CodecError:
            return None
        if not await self._admin.broker_names_at(address):
            return None
        try:
            return await self._admin.view_message(msg_id)
        except BrokerResponseError:
            return None

    async def queue_of(self, message: MessageExt) -> MessageQueue | None:
        """Return the queue of a message, with the name of its broker."""
        names = await self._admin.broker_names_at(message.store_host_text)
        own = [queue for queue in self.ends if queue.queue_id == message.queue_id]
        # Behind another address of the broker its name is not known, but one broker can be meant only.
        named = [queue for queue in own if queue.broker_name in names] or own[:1]
        return named[0] if named else None

    async def add_waiting(self, text: str, index_type: str) -> None:
        """Add the message from the schedule, timer or half topic, if its topic does not have it yet."""
        for topic in _WAITING_TOPICS:
            for address in self.addresses.values():
                try:
                    found = await self._admin.query_message(topic, text, index_type=index_type, addresses=[address])
                except BrokerResponseError:
                    continue
                own = [each for each in found if each.get_property(PROPERTY_REAL_TOPIC) == self.facts.topic]
                if own:
                    self.facts.waiting = await self._waiting(own[-1], address)
                    return

    async def _waiting(self, message: MessageExt, address: str) -> Waiting:
        topic, queue_id, offset = message.topic, message.queue_id, message.queue_offset
        if topic == RMQ_SYS_TRANS_HALF_TOPIC:
            offsets = (await self._admin.get_all_consumer_offset(address)).offset_table
            return Waiting(message, None, offsets.get(f"{topic}@{_HALF_GROUP}", {}).get(queue_id, 0) > offset)
        if topic == TIMER_TOPIC:
            due = message.get_property(PROPERTY_TIMER_OUT_MS) or ""
            return Waiting(message, int(due) if due.isdigit() else None)
        return Waiting(message, await self._due_ms(message, address))

    async def _due_ms(self, message: MessageExt, address: str) -> int | None:
        """Return the delivery time of a delayed message: the schedule topic has it in place of the tag's hash code."""
        try:
            entries = await self._admin.query_consume_queue(
                address, message.topic, message.queue_id, message.queue_offset, 1
            )
        except BrokerResponseError:
            return None
        return next((each.tags_code for each in entries.queue_data), None)

    async def add_group(self, queue: MessageQueue) -> None:
        """Add what the broker of the queue, the clients and the copies of the message say."""
        facts = self.facts
        facts.broker, facts.address = queue.broker_name, self.addresses[queue.broker_name]
        facts.bounds = (self.ends[queue].min_offset, self.ends[queue].max_offset)
        facts.progress = self.progress.get(queue)
        groups = await self._admin.get_all_subscription_group(facts.address)
        facts.config = groups.subscription_group_table.get(facts.group)
        forbidden = groups.forbidden_table.get(facts.group, {}).get(facts.topic, 0)
        facts.forbidden = bool(forbidden & 1 << INDEX_PERM_READ)
        if facts.message is None and facts.bounds[0] <= facts.offset < facts.bounds[1]:
            facts.message = await self._admin.message_at(ReadableQueue(queue, facts.address), facts.offset)
        await self._add_clients()
        if facts.message is not None and facts.message.uniq_key:
            await self._add_copies(facts.message, facts.message.uniq_key)
            await self._add_traces(facts.message.uniq_key)

    async def _add_clients(self) -> None:
        """Add the clients of the group, and what each reports."""
        facts = self.facts
        for address in [facts.address, *(each for each in self.addresses.values() if each != facts.address)]:
            try:
                facts.clients, facts.conflict = await self._admin.examine_consumers(facts.group, address)
                break
            except BrokerResponseError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
        else:
            return
        for client in facts.clients.connection_set:
            try:
                info = await self._admin.get_consumer_running_info(facts.group, client.client_id, address=address)
            except RocketBrokerError:
                continue  # it hangs, is busy or is old; it is named as silent
            facts.running[client.client_id] = info

    async def _add_copies(self, message: MessageExt, unique_id: str) -> None:
        facts = self.facts
        classic = RETRY_GROUP_TOPIC_PREFIX + facts.group
        retry_topics = [classic, *pop_retry_topics(facts.topic, facts.group)]
        delayed = [
            await self._delayed(each)
            for each in await self.query(RMQ_SYS_SCHEDULE_TOPIC, unique_id, "U")
            if each.get_property(PROPERTY_REAL_TOPIC) in retry_topics
        ]
        retried = [each for topic in retry_topics for each in await self._copies(topic, unique_id)]
        dead = await self._copies(DLQ_GROUP_TOPIC_PREFIX + facts.group, unique_id)
        resent: list[Copy] = []
        if dead:
            letters = {copy.message.offset_msg_id for copy in dead}
            found = {
                copy.message.offset_msg_id: copy
                for topic in (classic, facts.topic)
                for key in message.keys
                for copy in await self._copies(topic, key, "K")
                if copy.message.get_property(RESENT_FROM) in letters
            }
            resent = list(found.values())
        facts.copies = Copies(delayed, retried, dead, resent)

    async def _delayed(self, message: MessageExt) -> Copy:
        names = await self._admin.broker_names_at(message.store_host_text)
        address = next((self.addresses[name] for name in sorted(names) if name in self.addresses), "")
        due = await self._due_ms(message, address) if address else None
        return Copy(message, None, due)

    async def _copies(self, topic: str, text: str, index_type: str = "U") -> list[Copy]:
        found: list[Copy] = []
        for name, address in self.addresses.items():
            try:
                messages = await self._admin.query_message(topic, text, index_type=index_type, addresses=[address])
            except BrokerResponseError:
                continue  # this broker does not have the topic
            progress = await self.progress_at(address, topic) if messages else {}
            found += [Copy(each, progress.get(MessageQueue(topic, name, each.queue_id))) for each in messages]
        return found

    async def _add_traces(self, unique_id: str) -> None:
        facts = self.facts
        try:
            found = await self._admin.query_message(RMQ_SYS_TRACE_TOPIC, unique_id)
        except RocketBrokerError:
            return  # no trace topic, or its broker does not answer: traces only add to what is known
        traces = [trace for each in found for trace in decode_traces(each.body.decode(errors="replace"))]
        # Only newer clients name the group.
        own = [
            trace
            for trace in traces
            if isinstance(trace, SubAfterTrace) and trace.msg_id == unique_id and trace.group in {"", facts.group}
        ]
        facts.traces = sorted(own, key=lambda trace: trace.time_ms)


def at_offset(text: str, queues: list[MessageQueue]) -> tuple[MessageQueue, int]:
    """Return the queue and the offset that ``[BROKER:]QUEUE:OFFSET`` names.

    Raises:
        typer.BadParameter: it is malformed, or no queue or several have the name.
    """
    broker, _, rest = text.rpartition(":")[0].rpartition(":")
    offset = text.rpartition(":")[2]
    if not (rest.isdigit() and offset.isdigit()):
        raise typer.BadParameter(f"{text!r} is not QUEUE:OFFSET or BROKER:QUEUE:OFFSET, such as 3:1024")
    found = [queue for queue in queues if queue.queue_id == int(rest) and broker in {"", queue.broker_name}]
    if len(found) == 1:
        return found[0], int(offset)
    known = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
    fault = "is on several brokers; give BROKER:QUEUE:OFFSET" if found else "does not exist"
    raise typer.BadParameter(f"queue {rest} {fault}; the topic has {known}")


def next_of(
    ends: dict[MessageQueue, TopicOffset], progress: dict[MessageQueue, OffsetWrapper]
) -> tuple[MessageQueue | None, int]:
    """Return the next message of the queue that is furthest behind, or no queue if the group has consumed all."""
    begins = {
        queue: max(end.min_offset, progress[queue].consumer_offset if queue in progress else end.min_offset)
        for queue, end in ends.items()
    }
    behind = [queue for queue in ends if ends[queue].max_offset > begins[queue]]
    if not behind:
        return None, -1
    most = max(behind, key=lambda queue: ends[queue].max_offset - begins[queue])
    return most, begins[most]

"""Receives, acknowledgements, delays and dead letters (ReceiveMessageActivity, AckMessageActivity and others)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import msgspec

from rocketbroker.codec.message.message_decoder import decode_messages, decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.pop_info import (
    ALL_QUEUES,
    ExtraInfo,
    OrderCountKey,
    PoppedQueue,
    decode_extra_info,
    parse_order_count_info,
    parse_start_offset_info,
    retry_flag,
)
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.codec.remoting.bodies.pop import MAX_BIT_SET, BatchAck, BatchAckMessageRequestBody
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from rocketbroker.codec.remoting.headers.message import ConsumerSendMsgBackRequestHeader, ViewMessageRequestHeader
from rocketbroker.codec.remoting.headers.pop import (
    AckMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError, RemotingError, RocketBrokerError, shown
from rocketbroker.common.event_log import EventLog
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.proxy.call_context import (
    OK,
    CallContext,
    StatusError,
    check_group,
    check_topic,
    header_of,
    status_of,
    status_of_all,
    succeeded,
)
from rocketbroker.proxy.clients import Clients, ProxyClient, max_attempts, subscription
from rocketbroker.proxy.message_conversion import incoming, to_ms, to_timestamp
from rocketbroker.proxy.messaging_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    Status,
)
from rocketbroker.proxy.receipts import Place, ReceiptHandle, Receipts, decode_handle, place_of
from rocketbroker.proxy.routing import Routing
from rocketbroker.proxy.service_manager import ServiceManager

log = logging.getLogger(__name__)

_INIT_MODE_MAX: Final = 1
_MOST_MESSAGES: Final = 32
# Each may take a bit set of 8 KiB.
_MOST_ACKS: Final = 4096
# The part of grpcMaxOpenCalls that cancelled receives of one connection may take.
_SHARES: Final = 64


class _Popped(NamedTuple):
    """A message that a client receives."""

    record: MessageExt
    place: Place
    handle: ReceiptHandle


class Consuming:
    """Methods of consumers.

    Args:
        brokers: the brokers.
        routing: chooses brokers.
        clients: the clients.
        receipts: handles of messages.
        clock: clock of the invisible time.
        config: limits of times.
    """

    def __init__(
        self,
        brokers: ServiceManager,
        routing: Routing,
        clients: Clients,
        receipts: Receipts,
        clock: Clock,
        config: ProxyConfig,
    ) -> None:
        self._brokers = brokers
        self._routing = routing
        self._clients = clients
        self._receipts = receipts
        self._clock = clock
        self._config = config
        self._tasks = TaskOwner("Consuming")
        self._events = EventLog(log)
        # Pops whose receive was cancelled, by the address of the client's connection.
        self._abandoned: Counter[str] = Counter()

    async def stop(self) -> None:
        """Wait for pops no longer."""
        await self._tasks.stop()

    # -- receipt

    async def receive_message(
        self, receive: ReceiveMessageRequest, context: CallContext
    ) -> list[ReceiveMessageResponse]:
        """Return a status, messages, and the time of their delivery; a refusal is a status too.

        Whoever cannot send all of it calls ``not_taken``.
        """
        status, popped = Status(code=Code.MESSAGE_NOT_FOUND, message="no new message"), []
        try:
            client = self._clients.of(context)
            found = await self._receive(client, receive, context)
            if found is not None:
                popped = found
                status = OK if popped else Status(code=Code.MESSAGE_NOT_FOUND, message="no match message")
            if popped and self._is_renewed(receive):
                status, popped = self._renewed(client, popped)
        except RocketBrokerError as error:
            status = status_of(error)
        topic = Resource(name=receive.message_queue.topic.name)
        return [
            ReceiveMessageResponse(status=status),
            *(ReceiveMessageResponse(message=incoming(record, topic, handle.text)) for record, _, handle in popped),
            ReceiveMessageResponse(delivery_timestamp=to_timestamp(self._clock.time_ms())),
        ]

    def not_taken(
        self, receive: ReceiveMessageRequest, replies: Sequence[ReceiveMessageResponse], context: CallContext
    ) -> None:
        """Return messages to the group, since their client has gone."""
        topic, group = receive.message_queue.topic.name, receive.group.name
        handles = [
            decode_handle(each.message.system_properties.receipt_handle)
            for each in replies
            if each.WhichOneof("content") == "message"
        ]
        self._give_back(context, [(place_of(group, topic, handle), handle) for handle in handles])

    def _give_back(self, context: CallContext, messages: list[tuple[Place, ReceiptHandle]]) -> None:
        if messages:
            self._events.add(
                "client %s at %s went away from a receive: %d messages return to group %s",
                shown(context.client_id),
                context.peer,
                len(messages),
                messages[0][0].group,
            )
            self._receipts.give_back(self._clients.client_for_return(context), messages)

    async def _receive(
        self, client: ProxyClient, receive: ReceiveMessageRequest, context: CallContext
    ) -> list[_Popped] | None:
        """Return the messages of a pop that match, None if there were no messages."""
        poll_ms = self._poll_ms(client, receive, context)
        topic, group = check_topic(receive.message_queue.topic), check_group(receive.group)
        invisible_ms = self._config.default_invisible_time_mills
        if not self._is_renewed(receive):
            wanted_ms, least_ms = to_ms(receive.invisible_duration), self._config.min_invisible_time_mills_for_recv
            invisible_ms = _invisible_ms(wanted_ms, least_ms, self._config.max_invisible_time_mills)
        if receive.batch_size <= 0:
            remark = f"batch_size is {receive.batch_size}; ask for 1 to {_MOST_MESSAGES} messages"
            raise StatusError(Code.BAD_REQUEST, remark)
        wanted = subscription(topic, receive.filter_expression)
        group_config = await self._brokers.subscription_group_config(group)
        broker_name = await self._routing.readable_broker(topic, receive.message_queue.broker.name)
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=ALL_QUEUES,
            max_msg_nums=min(receive.batch_size, _MOST_MESSAGES),
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            born_time=self._clock.time_ms(),
            init_mode=_INIT_MODE_MAX,
            exp_type=wanted.expression_type,
            exp=wanted.sub_string,
            order=group_config.consume_message_orderly,
            attempt_id=receive.attempt_id or None,
            broker_name=broker_name,
        )
        answer = await self._pop(client, header, context)
        match answer.code:
            case ResponseCode.SUCCESS:
                return await self._matching(client, group_config, wanted, _messages_of(answer, header), context)
            case ResponseCode.POLLING_TIMEOUT | ResponseCode.PULL_NOT_FOUND:
                return None
            case ResponseCode.POLLING_FULL:
                remark = f"polling full: {answer.remark or 'too many receives wait at the broker'}; receive again later"
                raise StatusError(Code.TOO_MANY_REQUESTS, remark)
        raise BrokerResponseError(answer.code, answer.remark or "")

    def _is_renewed(self, receive: ReceiveMessageRequest) -> bool:
        """Return true if this front renews the invisible time."""
        return receive.auto_renew and self._config.enable_proxy_auto_renew

    def _poll_ms(self, client: ProxyClient, receive: ReceiveMessageRequest, context: CallContext) -> int:
        """Return the time to wait for messages: as the client wishes, within limits, and before its deadline."""
        shortest_ms = self._config.grpc_client_consumer_min_long_polling_timeout_millis
        longest_ms = self._config.grpc_client_consumer_max_long_polling_timeout_millis
        left_ms = None
        if context.deadline is not None:
            left_ms = int((context.deadline - asyncio.get_running_loop().time()) * 1000)
            if left_ms < shortest_ms:
                remark = (
                    f"The deadline time remaining is not enough for polling, please check network condition: {left_ms} "
                    f"ms are left of at least {shortest_ms}; raise the timeout of the call"
                )
                raise StatusError(Code.ILLEGAL_POLLING_TIME, remark)
        if receive.HasField("long_polling_timeout"):
            wanted_ms = to_ms(receive.long_polling_timeout)
        else:
            timeout_ms = to_ms(client.settings.request_timeout) if client.settings is not None else 0
            wanted_ms = longest_ms if left_ms is None else left_ms - timeout_ms // 2
        poll_ms = min(max(wanted_ms, shortest_ms), longest_ms)
        if left_ms is None:
            return poll_ms
        # An answer that leaves at the deadline comes too late.
        return max(0, min(poll_ms, left_ms - self._config.long_polling_reserve_time_in_millis))

    # A call may be cancelled at any moment: by the client, its deadline, or a lost connection. The broker hides what
    # was popped all the same, for the invisible time. So from the pop to the last write somebody knows the messages and
    # gives them back: here while the pop is under way, `_matching` after it, and the caller by `not_taken`.

    async def _pop(self, client: ProxyClient, header: PopMessageRequestHeader, context: CallContext) -> Command:
        """Return the answer to a pop; what comes after the call was cancelled is given back."""
        self._check_pops(context)
        command = request(RequestCode.POP_MESSAGE, header)
        command.grant = context.grant
        answer = self._brokers.invoke(client, header.broker_name or "", command)
        if isinstance(answer, RemotingCommand):
            return answer
        pop: asyncio.Task[Command | RemotingError] = self._tasks.start(_outcome(answer), "pop")
        try:
            await asyncio.wait([pop])
        except asyncio.CancelledError:
            self._brokers.drop(client, command)
            self._abandoned[context.peer] += 1
            pop.add_done_callback(lambda _: self._give_back_all(pop, header, context))
            raise
        if pop.cancelled():
            raise StatusError(Code.INTERNAL_SERVER_ERROR, "the server is stopping; receive again from another one")
        outcome = pop.result()
        if isinstance(outcome, RemotingError):
            raise outcome
        return outcome

    def _check_pops(self, context: CallContext) -> None:
        """Refuse a pop if too many wait at the brokers.

        Pops of receives that were cancelled count until their broker answers, or a client that receives and cancels in
        a loop would fill brokers and this process with them. Each connection has a small share of them, or that client
        would keep all others out.
        """
        most = self._config.grpc_max_open_calls
        share = max(1, most // _SHARES)
        if (abandoned := self._abandoned.get(context.peer, 0)) >= share:
            remark = (
                f"{abandoned:,} receives that were cancelled on this connection wait at the brokers, the limit is "
                f"{share:,}, a part of grpcMaxOpenCalls; receive again later"
            )
            raise StatusError(Code.TOO_MANY_REQUESTS, remark)
        if (waiting := len(self._tasks)) >= most:
            remark = f"{waiting:,} receives wait at the brokers, the limit (grpcMaxOpenCalls) is {most:,}"
            raise StatusError(Code.TOO_MANY_REQUESTS, f"{remark}; receive again later")

    def _give_back_all(
        self, pop: asyncio.Task[Command | RemotingError], header: PopMessageRequestHeader, context: CallContext
    ) -> None:
        """Give back the messages of a pop that nobody waits for; a stop leaves them to their invisible time."""
        self._abandoned[context.peer] -= 1
        if not self._abandoned[context.peer]:
            del self._abandoned[context.peer]
        if pop.cancelled() or pop.exception() is not None:  # the owner of tasks logs errors
            return
        outcome = pop.result()
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            self._give_back(context, [(each.place, each.handle) for each in _messages_of(outcome, header)])

    async def _matching(
        self,
        client: ProxyClient,
        group: SubscriptionGroupConfig,
        wanted: SubscriptionData,
        popped: list[_Popped],
        context: CallContext,
    ) -> list[_Popped]:
        """Return the messages to deliver.

        The broker filters by hashes of tags, so that other tags are acknowledged here. A message whose attempts are
        used up becomes a dead letter.
        """
        tags, most, matching, others = set(wanted.tags_set), max_attempts(group), [], []
        for each in popped:
            if tags and each.record.tags not in tags:
                others.append(self._ack(client, each.place, each.handle))
            elif each.record.reconsume_times >= most:
                message_id = each.record.uniq_key or each.record.offset_msg_id
                others.append(self._to_dead_letters(client, each.place, each.handle, message_id))
            else:
                matching.append(each)
        try:
            await _end_all(others, group.group_name)
        except BaseException:
            self._give_back(context, [(each.place, each.handle) for each in matching])
            raise
        return matching

    def _renewed(self, client: ProxyClient, popped: list[_Popped]) -> tuple[Status, list[_Popped]]:
        """Renew the invisible time of messages while their client lives; return them if it still does."""
        if client.is_gone:
            self._receipts.give_back(client, [(each.place, each.handle) for each in popped])
            remark = f"The client [{client.client_id}] is disconnected."
            return Status(code=Code.MESSAGE_NOT_FOUND, message=remark), []
        for record, place, handle in popped:
            self._receipts.renew(client, place, handle, record.reconsume_times)
        return OK, popped

    # -- acknowledgement

    async def ack_message(self, ack: AckMessageRequest, context: CallContext) -> AckMessageResponse:
        """Acknowledge messages; those of one broker by one request.

        Raises:
            StatusError: The topic or the group is illegal, or there is no entry.
        """
        topic, group = check_topic(ack.topic), check_group(ack.group)
        if not ack.entries:
            remark = "ack message result is empty: the request names no message; add an entry for each"
            raise StatusError(Code.INTERNAL_SERVER_ERROR, remark)
        if len(ack.entries) > _MOST_ACKS:
            remark = f"{len(ack.entries):,} entries exceed the limit of {_MOST_ACKS:,}; acknowledge by several requests"
            raise StatusError(Code.BAD_REQUEST, remark)
        client = self._clients.of(context)
        statuses: list[Status] = [OK] * len(ack.entries)
        at_brokers: dict[str, list[int]] = {}
        for index, entry in enumerate(ack.entries):
            at_brokers.setdefault(_broker_of(entry), []).append(index)
        for indexes in at_brokers.values():
            found = await self._ack_all(client, group, topic, [ack.entries[index] for index in indexes])
            for index, status in zip(indexes, found, strict=True):
                statuses[index] = status
        entries = [
            AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
            for entry, status in zip(ack.entries, statuses, strict=True)
        ]
        return AckMessageResponse(status=status_of_all(statuses), entries=entries)

    async def _ack_all(
        self, client: ProxyClient, group: str, topic: str, entries: Sequence[AckMessageEntry]
    ) -> list[Status]:
        """Acknowledge messages of one broker and return the status of each."""
        statuses: list[Status | None] = []
        handles: list[ReceiptHandle] = []
        try:
            async with AsyncExitStack() as stack:
                for entry in entries:
                    try:
                        newest = self._receipts.newest(client, group, topic, entry.receipt_handle)
                        handle = await stack.enter_async_context(newest)
                        _check_distance(handle.info)
                    except StatusError as error:
                        statuses.append(status_of(error))
                    else:
                        statuses.append(None)
                        handles.append(handle)
                if len(handles) == 1:
                    await self._ack(client, place_of(group, topic, handles[0]), handles[0])
                elif handles:
                    await self._ack_batch(client, group, topic, handles)
        except (BrokerResponseError, RemotingError) as error:
            failed = status_of(error)
            return [status or failed for status in statuses]
        return [status or OK for status in statuses]

    async def _ack(self, client: ProxyClient, place: Place, handle: ReceiptHandle) -> None:
        header = AckMessageRequestHeader(
            consumer_group=place.group,
            topic=place.stored_topic,
            queue_id=place.queue_id,
            extra_info=handle.text,
            offset=place.queue_offset,
            broker_name=place.broker_name,
        )
        await succeeded(self._brokers.invoke(client, place.broker_name, request(RequestCode.ACK_MESSAGE, header)))

    async def _ack_batch(self, client: ProxyClient, group: str, topic: str, handles: list[ReceiptHandle]) -> None:
        bits: dict[ExtraInfo, int] = {}
        for info, _ in handles:
            check_point = info._replace(queue_offset=info.ck_queue_offset)
            bits[check_point] = bits.get(check_point, 0) | 1 << (info.queue_offset - info.ck_queue_offset)
        acks = [
            BatchAck(
                consumer_group=group,
                topic=topic,
                retry=info.retry,
                start_offset=info.ck_queue_offset,
                queue_id=info.queue_id,
                revive_queue_id=info.revive_qid,
                pop_time=info.pop_time,
                invisible_time=info.invisible_time,
                bit_set=bit_set.to_bytes((bit_set.bit_length() + 7) // 8, "little"),
            )
            for info, bit_set in bits.items()
        ]
        broker_name = handles[0].info.broker_name
        body = BatchAckMessageRequestBody(broker_name, acks).encode()
        await succeeded(self._brokers.invoke(client, broker_name, request(RequestCode.BATCH_ACK_MESSAGE, None, body)))

    # -- other ends

    async def change_invisible_duration(
        self, change: ChangeInvisibleDurationRequest, context: CallContext
    ) -> ChangeInvisibleDurationResponse:
        """Let a message return at another time, 0 for at once; return its new handle."""
        topic, group = check_topic(change.topic), check_group(change.group)
        invisible_ms = _invisible_ms(to_ms(change.invisible_duration), 0, self._config.max_invisible_time_mills)
        client = self._clients.of(context)
        async with self._receipts.newest(client, group, topic, change.receipt_handle) as handle:
            place = place_of(group, topic, handle)
            changed = await self._receipts.change(client, place, handle, invisible_ms, suspend=change.suspend)
        return ChangeInvisibleDurationResponse(status=OK, receipt_handle=changed.text)

    async def forward_message_to_dead_letter_queue(
        self, forward: ForwardMessageToDeadLetterQueueRequest, context: CallContext
    ) -> ForwardMessageToDeadLetterQueueResponse:
        """Store a copy of a message in the group's dead letters, and acknowledge it."""
        topic, group = check_topic(forward.topic), check_group(forward.group)
        client = self._clients.of(context)
        async with self._receipts.newest(client, group, topic, forward.receipt_handle) as handle:
            place = place_of(group, topic, handle)
            if context.user and handle.commit_log_offset >= 0:
                await self._check_place(client, place, handle.commit_log_offset)
            await self._to_dead_letters(client, place, handle, forward.message_id)
        return ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def _check_place(self, client: ProxyClient, place: Place, commit_log_offset: int) -> None:
        """Check that the CommitLog offset of a handle leads to the message of its queue offset.

        The user's rights are for the topic and the group of the call. The broker finds the message by the CommitLog
        offset alone, so another one would copy a message of any topic to the dead letters of the user's group.
        """
        header = ViewMessageRequestHeader(commit_log_offset, place.stored_topic)
        command = request(RequestCode.VIEW_MESSAGE_BY_ID, header)
        answer = await succeeded(self._brokers.invoke(client, place.broker_name, command))
        found = decode_record(answer.body, read_body=False)
        if (found.topic, found.queue_id, found.queue_offset) != (
            place.stored_topic,
            place.queue_id,
            place.queue_offset,
        ):
            remark = (
                "receipt handle is invalid: its CommitLog offset leads to another message than its queue offset; use "
                "the one that came with the message"
            )
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, remark)

    async def _to_dead_letters(self, client: ProxyClient, place: Place, handle: ReceiptHandle, message_id: str) -> None:
        if handle.commit_log_offset < 0:
            remark = "commit log offset is empty: the receipt handle lacks its ninth field; use the one of the message"
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, remark)
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.commit_log_offset,
            group=place.group,
            delay_level=-1,
            origin_msg_id=message_id,
            origin_topic=place.stored_topic,
            max_reconsume_times=0,
        )
        command = request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await succeeded(self._brokers.invoke(client, place.broker_name, command))
        await self._ack(client, place, handle)


async def _end_all(calls: list[Coroutine[Any, Any, None]], group: str) -> None:
    """End messages that are not delivered; one whose end fails returns after its invisible time, and is tried again."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BrokerResponseError | RemotingError):
            log.warning("group %s: a message that is not delivered stays: %s", group, result)
        elif isinstance(result, BaseException):
            raise result


async def _outcome(answer: Awaitable[Command]) -> Command | RemotingError:
    """Return an answer, or why there is none."""
    try:
        return await answer
    except RemotingError as error:
        return error


def _invisible_ms(invisible_ms: int, least_ms: int, longest_ms: int) -> int:
    if not least_ms <= invisible_ms <= longest_ms:
        kind, limit = ("small. min", least_ms) if invisible_ms < least_ms else ("large. max", longest_ms)
        remark = f"the invisibleTime is too {kind} is {limit}: {invisible_ms} ms; choose {least_ms} to {longest_ms} ms"
        raise StatusError(Code.ILLEGAL_INVISIBLE_TIME, remark)
    return invisible_ms


def _broker_of(entry: AckMessageEntry) -> str:
    """Return the broker that a handle names; whatever it is, ``newest`` checks the handle."""
    fields = entry.receipt_handle.split(" ", 6)
    return fields[5] if len(fields) > 5 else ""


def _check_distance(info: ExtraInfo) -> None:
    """Check that the message lies within the reach of a check point, as its bit in a batch takes memory."""
    if not 0 <= info.queue_offset - info.ck_queue_offset < MAX_BIT_SET * 8:
        remark = (
            f"receipt handle is invalid: offset {info.queue_offset} is not of a pop from {info.ck_queue_offset} on; "
            "use the one that came with the message"
        )
        raise StatusError(Code.INVALID_RECEIPT_HANDLE, remark)


def _messages_of(answer: Command, asked: PopMessageRequestHeader) -> list[_Popped]:
    """Return the messages of an answer to POP_MESSAGE, each with its handle.

    Messages of a retry topic have theirs in POP_CK; for the others it follows from the header.

    Raises:
        CodecError: The answer is damaged, or lacks the queue of a message.
    """
    header = header_of(answer, PopMessageResponseHeader)
    starts = parse_start_offset_info(header.start_offset_info or "")
    counts = parse_order_count_info(header.order_count_info or "") if asked.order else {}
    popped = []
    for stored in decode_messages(answer.body, check_crc=False, decompress=False):
        record = stored
        known = record.get_property("POP_CK")
        if known is not None:
            info = decode_extra_info(known)
        else:
            retry = retry_flag(record.topic, asked.consumer_group)
            start = starts.get(PoppedQueue(retry, record.queue_id))
            if start is None:
                raise CodecError(f"startOffsetInfo lacks queue {record.queue_id} of {record.topic}")
            info = ExtraInfo(
                start,
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                retry,
                asked.broker_name or "",
                record.queue_id,
                record.queue_offset,
            )
            count = counts.get(OrderCountKey(retry, record.queue_id, record.queue_offset))
            if count is None:
                count = counts.get(OrderCountKey(retry, record.queue_id, None), 0)
            if count > 0:
                record = msgspec.structs.replace(record, reconsume_times=count)
        handle = ReceiptHandle(info, record.commit_log_offset)
        popped.append(_Popped(record, place_of(asked.consumer_group, asked.topic, handle), handle))
    return popped

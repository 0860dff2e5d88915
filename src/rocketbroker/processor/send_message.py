"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (org.apache.rocketmq.broker.processor.SendMessageProcessor).

The hottest path of the broker: header struct in, record into the mapped file, answer from a template, all plain calls.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from struct import pack
from typing import Final

from rocketbroker.broker.message.real_place import REAL_TOPIC
from rocketbroker.broker.schedule.delay_rewrite import DELAY
from rocketbroker.broker.timer.handle_schedule_message import HandleScheduleMessage
from rocketbroker.broker.timer.timer_rewrite import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS
from rocketbroker.broker.topic.system_topics import TIMER_TOPIC
from rocketbroker.broker.transaction.transactional_message_util import is_transaction, to_half_message
from rocketbroker.codec.message.message_batch import split_batch
from rocketbroker.codec.message.message_client_id_setter import UniqueIds
from rocketbroker.codec.message.message_properties import (
    append_property,
    decode_properties,
    find_properties,
    get_property,
    replace_property,
)
from rocketbroker.codec.message.message_sys_flag import (
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    TRANSACTION_ROLLBACK_TYPE,
    host_flags,
)
from rocketbroker.codec.message.recall_message_handle import RecallMessageHandle
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting.frame import LENGTH, decode_frame
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.send_message import SendMessageRequestHeader
from rocketbroker.codec.remoting.hot_responses import (
    batch_uniq_id_suffix,
    recall_handle_suffix,
    region_suffix,
    send_response,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.consume_queue_layout import MOST_IN_INNER_BATCH
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.support.acknowledged_answer import acknowledged_answer
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.key_limit import KeyLimit
from rocketbroker.processor.support.put_refusal import put_refusal
from rocketbroker.processor.support.retry_and_dlq import RetryAndDlq
from rocketbroker.processor.support.topic_target import TopicTarget, TopicTargets, other_queue
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.acknowledgement import Acknowledgement, Acknowledgements
from rocketbroker.store.message_appender import MessageAppender

# Ends each pair of properties.
_PAIR_END: Final = 2
# Bytes of an IPv4 address and a port.
_IPV4_HOST: Final = 8
# Messages whose ids, of 33 bytes each, fit into the header of an answer.
_MOST_IN_BATCH: Final = 400_000

# Bits of sysFlag that the broker alone sets; of a batch they are those of the record that is made of it.
_NOT_OF_A_MESSAGE: Final = TRANSACTION_ROLLBACK_TYPE | INNER_BATCH_FLAG

_FOR_LATER: Final = (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)

SendCommand = RemotingCommand[SendMessageRequestHeader]


class SendMessageProcessor:
    """Stores what producers send.

    Args:
        config: region, cluster, permissions.
        store_config: the limits of a message.
        appender: takes the messages.
        acknowledgements: say when a message may be answered.
        store_host: the broker's address as records hold it.
        targets: finds and creates topics.
        retry_and_dlq: what becomes of messages that consumers send to their retry topic.
        unique_ids: gives an id to messages of clients that give none.
        schedule: sends messages that are to be delivered later where they wait.
        fast_failure: refuses sends that are too many or too late.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a send depends on
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        appender: MessageAppender,
        acknowledgements: Acknowledgements,
        store_host: bytes,
        targets: TopicTargets,
        retry_and_dlq: RetryAndDlq,
        unique_ids: UniqueIds,
        schedule: HandleScheduleMessage,
        fast_failure: BrokerFastFailure,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._appender = appender
        self._acknowledgements = acknowledgements
        self._targets = targets
        self._retry_and_dlq = retry_and_dlq
        self._unique_ids = unique_ids
        self._schedule = schedule
        self._store_host = store_host
        self._host_hex = store_host.hex().upper()
        self._next_id = "," + self._host_hex
        self._message_id = self._host_hex.encode() + b"%016X"
        self._ipv6_store = host_flags(bytes(8), store_host)
        self._fast_failure = fast_failure
        self._waits_for_flush = acknowledgements.required
        self._key_limit = KeyLimit(store_config.max_keys_per_message)
        self._take_settings()

    def _take_settings(self) -> None:
        """Encode MSG_REGION, TRACE_ON and CLUSTER, which each single message gets, and the fields of each answer."""
        config = self._config
        self._region_id, self._trace_on = config.region_id, config.trace_on
        self._added = (
            (b"MSG_REGION", config.region_id.encode()),
            (b"TRACE_ON", b"true" if config.trace_on else b"false"),
            (b"CLUSTER", config.broker_cluster_name.encode()),
        )
        self._added_properties = b"".join(b"%b\x01%b\x02" % pair for pair in self._added)
        self._region_suffix = region_suffix(config.region_id, trace_on=config.trace_on)

    def process(self, connection: Connection, command: SendCommand) -> bytes | Awaitable[bytes | Command]:
        """Store one message, or a batch, and answer with its id and queue offset."""
        if self._waits_for_flush or connection.waited_s:
            self._fast_failure.check(connection)
        header = command.header
        config = self._config
        if config.trace_on is not self._trace_on or config.region_id is not self._region_id:
            self._take_settings()  # UPDATE_BROKER_CONFIG changed them
        target = self._targets.find(header, connection.remote_address)
        queue_id = header.queue_id
        if not 0 <= queue_id < target.queue_nums:
            queue_id = other_queue(header, target)
        if header.batch:
            return self._process_batch(connection, command, target, queue_id)
        message = self._message(connection, command, target, queue_id)
        result = self._appender.put_message(message)
        if result.status is not PutMessageStatus.PUT_OK:
            target.stats.misses += 1
            raise put_refusal(result)
        is_half = message.topic is RMQ_SYS_TRANS_HALF_TOPIC
        (self._targets.half_stats if is_half else target.stats).add(1, result.size)
        answer = send_response(
            command.opaque,
            queue_id,
            result.queue_offset,
            self._message_id % result.physical_offset,
            message.found[1],  # type: ignore[index]  # set by _message
            self._region_suffix + self._recall_handle(message) if message.topic is TIMER_TOPIC else self._region_suffix,
        )
        if target.waits:
            return self._answer_later(answer, result, target, (queue_id, message))
        return answer

    def _message(
        self, connection: Connection, command: SendCommand, target: TopicTarget, queue_id: int
    ) -> MessageExtBrokerInner:
        """The message to store: with the properties that the broker adds, and where it really goes."""
        header = command.header
        raw = header.properties.encode()
        if raw and raw[-1] != _PAIR_END:
            raw += b"\x02"
        if len(raw) > self._key_limit.always_fits:
            self._key_limit.check(raw)
        found = find_properties(raw)
        if found[1] is None:
            raw = append_property(raw, b"UNIQ_KEY", self._unique_ids.create().encode())
            found = find_properties(raw)
        message = MessageExtBrokerInner(
            header.topic,
            queue_id,
            command.body,
            self._with_own(raw) if found[3] else raw + self._added_properties,
            header.flag,
            header.sys_flag | target.sys_flag | self._ipv6_store,
            header.born_timestamp,
            connection.remote_host,
            header.reconsume_times,
            0,
            found,
        )
        if len(connection.remote_host) > _IPV4_HOST:
            message.sys_flag |= host_flags(connection.remote_host, bytes(_IPV4_HOST))
        if target.is_retry:
            self._retry_and_dlq.redirect(header, message)
        if found[3]:
            self._special(message)
        if message.sys_flag & _NOT_OF_A_MESSAGE:
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, _why_none(message.sys_flag))
        return message

    def _recall_handle(self, message: MessageExtBrokerInner) -> bytes:
        """The field of the answer by which a timer message can be cancelled (attachRecallHandle)."""
        topic = get_property(message.properties, REAL_TOPIC) or b""
        # One more: a cancel for that time gets into the same slot.
        deliver_ms = int(get_property(message.properties, b"TIMER_OUT_MS") or 0) + 1
        unique_key = message.found[1] or b""  # type: ignore[index]  # set by _message
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX.encode()):
            return b""
        handle = RecallMessageHandle(
            topic.decode(), self._config.broker_name, str(deliver_ms), unique_key.decode("utf-8", "replace")
        )
        return recall_handle_suffix(handle.encode())

    def _process_batch(
        self, connection: Connection, command: SendCommand, target: TopicTarget, queue_id: int
    ) -> bytes | Awaitable[bytes | Command]:
        header = command.header
        if target.is_retry:
            remark = f"batch request does not support retry group {header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)}"
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)
        self._check_batch(header, len(command.body))
        try:
            parts = split_batch(command.body)
        except CodecError as error:
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if len(parts.flags) > _MOST_IN_BATCH:
            remark = (
                f"the batch has {len(parts.flags)} messages; the ids of at most {_MOST_IN_BATCH} fit into an answer"
            )
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)
        self._key_limit.check_all([header.properties.encode(), *parts.properties])
        message = MessageExtBrokerInner(
            topic=header.topic,
            queue_id=queue_id,
            body=b"",
            sys_flag=header.sys_flag | target.sys_flag | host_flags(connection.remote_host, self._store_host),
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times,
        )
        unique_key = get_property(header.properties.encode(), b"UNIQ_KEY")
        suffix = self._region_suffix
        if target.is_batch_cq and unique_key is not None:
            self._make_inner(message, command, len(parts.flags))
            suffix += batch_uniq_id_suffix(unique_key)
            result = self._appender.put_inner_batch(message, len(parts.flags))
        else:
            result = self._appender.put_messages(message, parts)
        if result.status is not PutMessageStatus.PUT_OK:
            target.stats.misses += 1
            raise put_refusal(result)
        target.stats.add(len(parts.flags), result.size)
        ids = self._message_ids(result.physical_offsets or [result.physical_offset])
        answer = send_response(command.opaque, queue_id, result.queue_offset, ids, unique_key, suffix)
        if target.waits:
            return self._answer_later(answer, result, target, (queue_id, message))
        return answer

    def _make_inner(self, message: MessageExtBrokerInner, command: SendCommand, count: int) -> None:
        """Have a batch stored as one record, as topics of batches take it (SendMessageProcessor.sendBatchMessage)."""
        if count > MOST_IN_INNER_BATCH:
            remark = (
                f"the batch has {count} messages; topic[{message.topic}] has queue.type=BatchCQ, "
                f"which takes {MOST_IN_INNER_BATCH} in a batch"
            )
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)
        raw = command.header.properties.encode()
        if raw[-1] != _PAIR_END:
            raw += b"\x02"
        message.body = command.body
        message.flag = command.header.flag
        message.properties = replace_property(self._with_own(raw), b"INNER_NUM", b"%d" % count)
        message.sys_flag |= INNER_BATCH_FLAG | NEED_UNWRAP_FLAG

    def _check_batch(self, header: SendMessageRequestHeader, length: int) -> None:
        """Refuse what cannot be done for a batch (CommitLog.asyncPutMessages)."""
        limit = self._store_config.max_message_size
        if length > limit:
            remark = f"the batch has {length} bytes, the limit is {limit} (maxMessageSize)"
        elif header.sys_flag & TRANSACTION_ROLLBACK_TYPE:
            remark = (
                f"a batch cannot be part of a transaction (sysFlag {header.sys_flag}); send its messages one by one"
            )
        elif any(get_property(header.properties.encode(), name) is not None for name in _FOR_LATER):
            remark = "a batch cannot be delayed; send its messages one by one"
        else:
            return
        raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _message_ids(self, offsets: Sequence[int]) -> bytes:
        """Offset message ids, comma-joined: host and CommitLog offset, of 8 bytes each, in hex."""
        joined = pack(f">{len(offsets)}Q", *offsets).hex(",", 8).upper()
        return (self._host_hex + joined.replace(",", self._next_id)).encode()

    def _with_own(self, raw: bytes) -> bytes:
        """Properties that may have the broker's own already: the message was consumed and is sent again."""
        for name, value in self._added:
            raw = replace_property(raw, name, value)
        return raw

    def _special(self, message: MessageExtBrokerInner) -> None:
        """Half messages and those for later go to topics of their own; what counts as a batch and is none, nowhere."""
        if get_property(message.properties, b"INNER_NUM") is not None:
            remark = "the property INNER_NUM is set by the broker, on a batch; send the message without it"
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if is_transaction(message):
            self._check_transactions_allowed()
            to_half_message(message)
            return
        pairs = decode_properties(message.properties)
        if pairs.get("TRAN_MSG"):
            message.sys_flag &= ~TRANSACTION_ROLLBACK_TYPE
        self._schedule(message)

    def _check_transactions_allowed(self) -> None:
        if self._config.reject_transaction_message:
            remark = (
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden: "
                "its rejectTransactionMessage is true"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)

    def _answer_later(
        self, answer: bytes, result: PutMessageResult, target: TopicTarget, sent: tuple[int, MessageExtBrokerInner]
    ) -> bytes | Awaitable[bytes | Command]:
        """The answer once the message is on disk, under SYNC_FLUSH, and its topic, when that is new.

        A dead letter goes to a topic of its own.
        """
        queue_id, message = sent
        queues = [(target.config.topic_name, queue_id)]
        if target.is_retry:
            queues.append((message.topic, message.queue_id))
        waits = self._targets.waits(*queues)
        must_wait = bool(waits) or self._waits_for_flush
        target.waits = must_wait or target.is_retry
        if not must_wait:
            return answer
        wait = self._acknowledgements.wait_for(result, waits)
        return self._fast_failure.answer_when_acknowledged(wait, partial(_acknowledged, answer))


def _why_none(sys_flag: int) -> str:
    if sys_flag & INNER_BATCH_FLAG:
        return (
            f"sysFlag {sys_flag} is that of a batch in one record ({INNER_BATCH_FLAG}), which the broker makes itself "
            "of a batch that SEND_BATCH_MESSAGE brings to a topic with queue.type=BatchCQ; send that instead"
        )
    return f"sysFlag {sys_flag} is that of a transaction, but the property TRAN_MSG is not true"


def _acknowledged(answer: bytes, outcome: Acknowledgement) -> bytes | Command:
    if outcome.ok:
        return answer
    return acknowledged_answer(decode_frame(memoryview(answer)[LENGTH.size :]), outcome)

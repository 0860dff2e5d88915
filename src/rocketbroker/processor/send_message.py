"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (org.apache.rocketmq.broker.processor.SendMessageProcessor).

The hottest path of the broker: header struct in, record into the mapped file, answer from a template, all plain calls.
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from rocketbroker.broker.message_copy import REAL_TOPIC
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.broker.transaction.transactional_message_util import is_transaction, to_half_message
from rocketbroker.codec.message.message_const import (
    BROKER_FLAGS,
    INNER_BATCH_FLAG,
    PROPERTY_PRIORITY,
    TRANSACTION_ROLLBACK_TYPE,
    host_flags,
    priority_of,
)
from rocketbroker.codec.message.message_id import RecallMessageHandle, UniqueIds
from rocketbroker.codec.message.message_properties import (
    append_property,
    decode_properties,
    find_properties,
    get_property,
    remove_property,
)
from rocketbroker.codec.message.topic_message_type import PRIORITY, type_of
from rocketbroker.codec.message.topic_validator import (
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_TRACE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
)
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.hot_responses import one_send_response, recall_handle_suffix, send_response
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.batch_send import BatchSend, SendCommand
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.put_answers import MessagePuts, put_refusal
from rocketbroker.processor.support.request_family import NO_MESSAGES, Refusal, answers
from rocketbroker.processor.support.send_answers import SendAnswers
from rocketbroker.processor.support.send_runs import BatchRuns, SendRuns
from rocketbroker.processor.support.sent_properties import BrokerProperties, KeyLimit
from rocketbroker.processor.support.topic_target import HEADER_V2, RetryAndDlq, TopicTarget, TopicTargets, other_queue
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus

# Ends each pair of properties.
_PAIR_END: Final = 2
_PRIORITY: Final = PROPERTY_PRIORITY.encode()
# Bytes of an IPv4 address and a port.
_IPV4_HOST: Final = 8
# Looking up a member in its enum takes 20 times as long.
_PUT_OK: Final = PutMessageStatus.PUT_OK
# Clients then try the next broker (SendMessageProcessor.rejectRequest).
_AT_SLAVE: Final = Refusal(ResponseCode.SYSTEM_BUSY, NO_MESSAGES)


class SendMessageProcessor:
    """Stores messages of producers.

    Args:
        config: region, cluster, permissions.
        puts: puts into the store, and its limits.
        targets: topics, found or created.
        retry_and_dlq: redirect of messages whose retries are used up.
        unique_ids: ids for messages of clients that set none.
        schedule: redirect of delayed messages to their system topic.
        fast_failure: limit of waiting sends.
    """

    def __init__(
        self,
        config: BrokerConfig,
        puts: MessagePuts,
        targets: TopicTargets,
        retry_and_dlq: RetryAndDlq,
        unique_ids: UniqueIds,
        schedule: HandleScheduleMessage,
        fast_failure: BrokerFastFailure,
    ) -> None:
        store_config, appender, acknowledgements, store_host = puts
        self._config = config
        self._appender = appender
        self._targets = targets
        self._retry_and_dlq = retry_and_dlq
        self._unique_ids = unique_ids
        self._schedule = schedule
        self._store_host = store_host
        self._message_id = store_host.hex().upper().encode() + b"%016X"
        self._ipv6_store = host_flags(bytes(8), store_host)
        self._fast_failure = fast_failure
        self._key_limit = KeyLimit(store_config.max_keys_per_message)
        self._trace_key_limit = self._key_limit.of_traces()
        self._trace_topics = {RMQ_SYS_TRACE_TOPIC, config.msg_trace_topic_name}
        self._answers = SendAnswers(acknowledgements, targets, fast_failure)
        self._must_wait = self._answers.must_wait
        self._batches = BatchSend(store_config, appender, store_host, self._key_limit, self._answers)
        self._own = BrokerProperties(config, store_host)
        # For requests of the same kind that come together.
        self.runs = SendRuns(appender.put_run, config, store_host, targets, self._key_limit, self._answers)
        self.batch_runs = BatchRuns(appender.put_batches, config, store_host, targets, self._key_limit, self._answers)

    @answers(
        RequestCode.SEND_MESSAGE,
        SendMessageRequestHeader,
        Audience.CLIENT,
        takes_large_bodies=True,
        runs="runs",
        at_slave=_AT_SLAVE,
    )
    @answers(
        RequestCode.SEND_MESSAGE_V2,
        HEADER_V2,
        Audience.CLIENT,
        takes_large_bodies=True,
        runs="runs",
        at_slave=_AT_SLAVE,
    )
    @answers(
        RequestCode.SEND_BATCH_MESSAGE,
        HEADER_V2,
        Audience.CLIENT,
        takes_large_bodies=True,
        runs="batch_runs",
        at_slave=_AT_SLAVE,
    )
    def send_message(self, connection: Connection, command: SendCommand) -> bytes | Awaitable[bytes | Command]:
        """Store one message, or a batch, and answer with its id and queue offset."""
        if self._must_wait or connection.waited_s:
            self._fast_failure.check(connection)
        header = command.header
        config, own = self._config, self._own
        if config.trace_on is not own.trace_on or config.region_id is not own.region_id:
            own = self._own = BrokerProperties(config, self._store_host)  # UPDATE_BROKER_CONFIG changed them
        target = self._targets.find(header, connection)
        if target.waits and not self._must_wait:
            self._fast_failure.begin_put()
        queue_id = header.queue_id
        if not 0 <= queue_id < target.queue_nums:
            queue_id = other_queue(header, target)
        if header.batch:
            return self._batches.process(connection, command, target, queue_id, own)
        message = self._message(connection, command, target, queue_id, own)
        if self._must_wait:
            self._answers.check_replicas(message, target)
        result = self._appender.put_message(message)
        if result.status is not _PUT_OK:
            target.stats.misses += 1
            raise put_refusal(result)
        if message.queue_id != queue_id and message.topic is header.topic:
            queue_id = message.queue_id  # that of its priority
        is_half = message.topic is RMQ_SYS_TRANS_HALF_TOPIC
        (self._targets.half_stats if is_half else target.stats).add(1, result.size)
        if target.meter is not None:
            target.meter.sent(message.topic, message.properties, result.size)
        offset, physical_offset = result.queue_offset, result.physical_offset
        unique_key: bytes = message.found[1]  # type: ignore[index, assignment]  # set by _message
        if message.topic is not TIMER_TOPIC and unique_key.isalnum():
            answer = one_send_response(
                command.opaque, queue_id, offset, physical_offset, unique_key, own.answer_template
            )
        else:
            fields = own.answer_fields
            if message.topic is TIMER_TOPIC:
                fields += self._recall_handle(message)
            message_id = self._message_id % physical_offset
            answer = send_response(command.opaque, queue_id, offset, message_id, unique_key, fields)
        return self._answers.when_safe(answer, result, target, queue_id, message) if target.waits else answer

    def _message(
        self, connection: Connection, command: SendCommand, target: TopicTarget, queue_id: int, own: BrokerProperties
    ) -> MessageExtBrokerInner:
        """Return the message to store, with the broker's properties and its real topic."""
        header, born_host = command.header, connection.remote_host
        raw = header.properties.encode()
        if raw and raw[-1] != _PAIR_END:
            raw += b"\x02"
        if len(raw) > self._key_limit.always_fits:
            (self._trace_key_limit if header.topic in self._trace_topics else self._key_limit).check(raw)
        found = find_properties(raw)
        if found[1] is None:
            raw = append_property(raw, b"UNIQ_KEY", self._unique_ids.create().encode())
            found = find_properties(raw)
        message = MessageExtBrokerInner(
            header.topic,
            queue_id,
            command.body,
            own.replace_in(raw) if found[3] else raw + own.encoded,
            header.flag,
            header.sys_flag | target.sys_flag | self._ipv6_store,
            header.born_timestamp,
            born_host,
            header.reconsume_times,
            0,
            found,
        )
        if len(born_host) > _IPV4_HOST:
            message.sys_flag |= host_flags(born_host, bytes(_IPV4_HOST))
        if target.is_retry:
            self._retry_and_dlq.redirect(header, message)
        if found[3]:
            self._redirect(message, target)
        if message.sys_flag & BROKER_FLAGS:
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, _wrong_flag(message.sys_flag))
        return message

    def _recall_handle(self, message: MessageExtBrokerInner) -> bytes:
        """Encode the field of the answer that lets a client cancel a timer message (attachRecallHandle)."""
        topic = get_property(message.properties, REAL_TOPIC) or b""
        # A millisecond later, so that the cancel gets into the same slot.
        deliver_ms = int(get_property(message.properties, b"TIMER_OUT_MS") or 0) + 1
        unique_key = message.found[1] or b""  # type: ignore[index]  # set by _message
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX.encode()):
            return b""
        handle = RecallMessageHandle(
            topic.decode(), self._config.broker_name, str(deliver_ms), unique_key.decode("utf-8", "replace")
        )
        return recall_handle_suffix(handle.encode())

    def _redirect(self, message: MessageExtBrokerInner, target: TopicTarget) -> None:
        """Redirect half and delayed messages to their system topics, and a message with a priority to that queue.

        INNER_NUM is rejected: it is for batches.
        """
        pairs = decode_properties(message.properties)
        if "INNER_NUM" in pairs:
            remark = "only the broker sets the property INNER_NUM, on a batch; send the message without it"
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if PROPERTY_PRIORITY in pairs:
            _apply_priority(message, target, pairs)
        if is_transaction(message):
            self._check_transactions_allowed()
            to_half_message(message)
            return
        if "TRAN_MSG" in pairs:
            message.sys_flag &= ~TRANSACTION_ROLLBACK_TYPE
        self._schedule(message)

    def _check_transactions_allowed(self) -> None:
        if self._config.reject_transaction_message:
            remark = (
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden: "
                "its rejectTransactionMessage is true"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)


def _apply_priority(message: MessageExtBrokerInner, target: TopicTarget, pairs: Mapping[str, str]) -> None:
    """Let the priority of a message choose its queue, whatever type its topic has; another kind of message loses it."""
    priority = priority_of(pairs[PROPERTY_PRIORITY])
    if priority is None:
        return
    if type_of(pairs) != PRIORITY:
        message.properties = remove_property(message.properties, _PRIORITY)
    elif message.topic == target.config.topic_name:  # not a dead letter
        message.queue_id = min(priority, max(target.config.write_queue_nums - 1, 0))


def _wrong_flag(sys_flag: int) -> str:
    if sys_flag & INNER_BATCH_FLAG:
        return (
            f"sysFlag {sys_flag} marks a batch in one record ({INNER_BATCH_FLAG}), which only the broker makes; send "
            "the batch by SEND_BATCH_MESSAGE to a topic with queue.type=BatchCQ"
        )
    return f"sysFlag {sys_flag} marks a transaction, but the property TRAN_MSG is not true; set it or clear the flag"

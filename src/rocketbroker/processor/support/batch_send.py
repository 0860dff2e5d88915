"""Batches: sends whose body holds several messages (SendMessageProcessor.sendBatchMessage)."""

from collections.abc import Awaitable
from typing import Final

from rocketbroker.broker.schedule_message_service import DELAY
from rocketbroker.broker.timer.timer_rewrite import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_batch import BatchParts, holds_more_than, split_batch
from rocketbroker.codec.message.message_const import (
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    TRANSACTION_ROLLBACK_TYPE,
    host_flags,
)
from rocketbroker.codec.message.message_properties import find_properties, get_property, replace_property
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.hot_responses import batch_uniq_id_suffix, message_ids, send_response
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.consume_queue_layout import MOST_IN_INNER_BATCH
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.support.put_answers import put_refusal
from rocketbroker.processor.support.send_answers import SendAnswers
from rocketbroker.processor.support.sent_properties import BrokerProperties, KeyLimit
from rocketbroker.processor.support.topic_target import TopicTarget
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus
from rocketbroker.store.message_appender import MessageAppender

# Looking a member up in its enum takes 20 times as long.
_PUT_OK: Final = PutMessageStatus.PUT_OK
# Index keys that the messages of a batch may have on average when it has as many as maxMessagesPerBatch allows. The
# event loop takes 0.2 µs to note a key, and 4 MiB have room for a million.
_MEAN_KEYS: Final = 4
_DELAYS: Final = (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)

SendCommand = RemotingCommand[SendMessageRequestHeader]


class BatchSend:
    """Stores batches: message by message, or as one record in a topic with ``queue.type=BatchCQ``.

    Args:
        store_config: the limits of a batch.
        appender: append path of the messages.
        store_host: the broker's address in the form of records.
        key_limit: limit of index keys for each message.
        answers: delay of answers.
    """

    def __init__(
        self,
        store_config: MessageStoreConfig,
        appender: MessageAppender,
        store_host: bytes,
        key_limit: KeyLimit,
        answers: SendAnswers,
    ) -> None:
        self._store_config = store_config
        self._appender = appender
        self._key_limit = key_limit
        self._answers = answers
        self._store_host = store_host
        self._host_hex = store_host.hex().upper()

    def process(
        self, connection: Connection, command: SendCommand, target: TopicTarget, queue_id: int, own: BrokerProperties
    ) -> bytes | Awaitable[bytes | Command]:
        """Store a batch and answer with the ids of its messages and the queue offset of the first."""
        header = command.header
        properties = header.properties.encode()
        _, unique_key, _, is_special = find_properties(properties)
        self._check(header, target, command.body)
        if is_special and any(get_property(properties, name) is not None for name in _DELAYS):
            raise _illegal("a batch cannot be delayed; send its messages one by one")
        try:
            parts = split_batch(command.body)
        except CodecError as error:
            raise _illegal(str(error)) from error
        count = len(parts)
        self._key_limit.check(properties)
        self._check_keys(parts, len(command.body))
        if parts.lengths is None or parts.lengths[1] > self._key_limit.always_fits:
            self._key_limit.check_all(parts.properties)
        message = MessageExtBrokerInner(
            topic=header.topic,
            queue_id=queue_id,
            body=b"",
            properties=properties,
            sys_flag=header.sys_flag | target.sys_flag | host_flags(connection.remote_host, self._store_host),
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times,
        )
        if self._answers.must_wait:
            self._answers.check_replicas(message, target)
        suffix = own.answer_fields
        if target.is_batch_cq and unique_key is not None:
            _make_inner(message, command, count, own)
            suffix += batch_uniq_id_suffix(unique_key)
            result = self._appender.put_inner_batch(message, count)
        else:
            result = self._appender.put_messages(message, parts)
        if result.status is not _PUT_OK:
            target.stats.misses += 1
            raise put_refusal(result)
        target.stats.add(count, result.size)
        if target.meter is not None:
            target.meter.sent(message.topic, properties, result.size, count)
        ids = message_ids(self._host_hex, result.physical_offsets or [result.physical_offset])
        answer = send_response(command.opaque, queue_id, result.queue_offset, ids, unique_key, suffix)
        return self._answers.when_safe(answer, result, target, queue_id, message) if target.waits else answer

    def _check(self, header: SendMessageRequestHeader, target: TopicTarget, body: ReadableBuffer) -> None:
        """Reject features that a batch cannot have (CommitLog.asyncPutMessages)."""
        limit, length = self._store_config.max_message_size, len(body)
        most = self._store_config.max_messages_per_batch
        if target.is_retry:
            remark = f"batch request does not support retry group {header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)}"
        elif length > limit:
            remark = (
                f"maxMessageSize: the batch has {length:,} bytes, above the limit of {limit:,}; "
                "split it or raise maxMessageSize"
            )
        elif not target.is_batch_cq and holds_more_than(body, most):
            remark = (
                f"maxMessagesPerBatch: the batch has more messages than the limit of {most:,}; "
                "split it or raise maxMessagesPerBatch"
            )
        elif header.sys_flag & TRANSACTION_ROLLBACK_TYPE:
            remark = (
                f"a batch cannot be part of a transaction (sysFlag {header.sys_flag}); send its messages one by one"
            )
        else:
            return
        raise _illegal(remark)

    def _check_keys(self, parts: BatchParts, length: int) -> None:
        """Bound the keys of all messages; a key and a blank take two bytes, so that few batches need a look."""
        most = _MEAN_KEYS * self._store_config.max_messages_per_batch
        # Blanks of other properties count first, as looking KEYS up takes longer.
        if length <= 2 * most or sum(each.count(b" ") for each in parts.properties) <= most:
            return
        keys = sum((get_property(each, b"KEYS") or b"").count(b" ") for each in parts.properties)
        if keys > most:
            raise _illegal(
                f"maxMessagesPerBatch: the batch has over {keys:,} keys, above {_MEAN_KEYS} for each of "
                f"{self._store_config.max_messages_per_batch:,} messages; split it or raise maxMessagesPerBatch"
            )


def _make_inner(message: MessageExtBrokerInner, command: SendCommand, count: int, own: BrokerProperties) -> None:
    """Turn a batch into one record."""
    if count > MOST_IN_INNER_BATCH:
        raise _illegal(
            f"the batch has {count} messages; topic[{message.topic}] has queue.type=BatchCQ, "
            f"which allows {MOST_IN_INNER_BATCH} per batch; split it"
        )
    properties = command.header.properties.encode()
    if not properties.endswith(b"\x02"):
        properties += b"\x02"
    message.body = command.body
    message.flag = command.header.flag
    message.properties = replace_property(own.replace_in(properties), b"INNER_NUM", b"%d" % count)
    message.sys_flag |= INNER_BATCH_FLAG | NEED_UNWRAP_FLAG


def _illegal(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)

"""RECALL_MESSAGE (370): cancels a timer message (RecallMessageProcessor).

The cancellation is itself a message, which waits for the same slot of the timer.
"""

from collections.abc import Awaitable

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_id import RecallMessageHandle, decode_recall_handle
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.topic_config import PERM_WRITE
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.message import RecallMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.support.put_answers import MessagePuts, answer_when_acknowledged, put_refusal
from rocketbroker.processor.support.request_family import Refusal, answers
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus

RECALL_MESSAGE_TAG = "_RECALL_TAG_"
_MAX_DIGITS = 18
_SHOWN = 127
_AT_SLAVE = Refusal(
    ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave and recalls no messages; recall them at the master"
)


class RecallMessageProcessor:
    """Stores the cancellation of a message; the timer looks for that message when it is due.

    Args:
        config: ``recallMessageEnable``, name and permission of the broker.
        topic_configs: the topics.
        puts: puts into the store, and its limits.
        schedule: redirect to the timer's topic.
        clock: clock for the delivery time.
        stats: counters of stored messages.
    """

    def __init__(
        self,
        config: BrokerConfig,
        puts: MessagePuts,
        topic_configs: TopicConfigManager,
        schedule: HandleScheduleMessage,
        clock: Clock,
        stats: BrokerStatsManager,
    ) -> None:
        store_config, appender, acknowledgements, store_host = puts
        self._config = config
        self._topic_configs = topic_configs
        self._store_config = store_config
        self._appender = appender
        self._acknowledgements = acknowledgements
        self._store_host = store_host
        self._schedule = schedule
        self._clock = clock
        self._stats = stats

    @answers(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader, Audience.CLIENT, at_slave=_AT_SLAVE)
    def recall_message(
        self, connection: Connection, command: RemotingCommand[RecallMessageRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Cancel a message and return its unique key; under SYNC_FLUSH answer once the cancellation is on disk.

        Raises:
            BrokerResponseError: NO_PERMISSION, SERVICE_NOT_AVAILABLE, TOPIC_NOT_EXIST; ILLEGAL_OPERATION if the
                handle is not of this topic and broker, or its time has passed; the codes of a send.
        """
        header = command.header
        self._check_allowed(header.topic)
        handle = self._handle(header)
        message = self._message(connection, header, handle)
        self._schedule(message)
        result = self._appender.put_message(message)
        if result.status is not PutMessageStatus.PUT_OK:
            raise put_refusal(result)
        self._stats.topic_put(message.topic).add(1, result.size)
        answer = response(header={"msgId": handle.message_id, "MSG_REGION": self._config.region_id})
        if not self._acknowledgements.required:
            return answer
        return answer_when_acknowledged(self._acknowledgements, result, answer)

    def _check_allowed(self, topic: str) -> None:
        config = self._config
        if not config.recall_message_enable:
            remark = "recall failed, operation is forbidden: recallMessageEnable is false"
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        if self._clock.time_ms() < config.start_accept_send_request_time_stamp:
            remark = (
                "recall failed, broker service not available, until "
                f"{config.start_accept_send_request_time_stamp} (startAcceptSendRequestTimeStamp, ms since 1970)"
            )
            raise BrokerResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        if not (config.broker_permission & PERM_WRITE or config.allow_recall_when_broker_not_writeable):
            remark = (
                f"recall failed, broker service not available: brokerPermission is {config.broker_permission}, which "
                "lacks write (2), and allowRecallWhenBrokerNotWriteable is false"
            )
            raise BrokerResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        if topic not in self._topic_configs.topics:
            remark = f"recall failed, the topic[{topic[:_SHOWN]}] not exist"
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, remark)

    def _handle(self, header: RecallMessageRequestHeader) -> RecallMessageHandle:
        try:
            handle = decode_recall_handle(header.recall_handle)
        except CodecError as error:
            raise _illegal(str(error)) from error
        if handle.topic != header.topic:
            raise _illegal(
                f"recall failed, topic not match: the handle is for {handle.topic[:_SHOWN]}, but the request for "
                f"{header.topic}"
            )
        name = self._config.broker_name
        if handle.broker_name != name:
            raise _illegal(
                f"recall failed, broker service not available: the handle is for {handle.broker_name[:_SHOWN]}, but "
                f"this is {name}"
            )
        self._check_time(handle.deliver_ms)
        return handle

    def _check_time(self, deliver_ms: str) -> None:
        if not (deliver_ms.isascii() and deliver_ms.isdigit() and len(deliver_ms) <= _MAX_DIGITS):
            raise _illegal(f"recall failed, timestamp invalid: {deliver_ms[:_SHOWN]!r} is not a time in ms")
        left_ms = int(deliver_ms) - self._clock.time_ms()
        limit_ms = self._store_config.timer_max_delay_sec * 1000
        if not 0 < left_ms < limit_ms:
            raise _illegal(
                f"recall failed, timestamp invalid: {left_ms} ms are left; it must be more than 0 and less than "
                f"{limit_ms} ms (timerMaxDelaySec)"
            )

    def _message(
        self, connection: Connection, header: RecallMessageRequestHeader, handle: RecallMessageHandle
    ) -> MessageExtBrokerInner:
        now = self._clock.time_ms()
        pairs = {
            "TAGS": RECALL_MESSAGE_TAG,
            "TIMER_DEL_UNIQKEY": handle.message_id,
            "UNIQ_KEY": handle.message_id,
            "TIMER_DELIVER_MS": handle.deliver_ms,
            "BORN_TIMESTAMP": str(now),
            "PGROUP": header.producer_group or "",
        }
        try:
            properties = encode_properties({name: value for name, value in pairs.items() if value or name != "PGROUP"})
        except CodecError as error:
            raise _illegal(f"recall handle is invalid: {error}") from error
        return MessageExtBrokerInner(
            topic=handle.topic,
            queue_id=0,
            body=b"0",
            properties=properties,
            sys_flag=host_flags(connection.remote_host, self._store_host),
            born_timestamp=now,
            born_host=connection.remote_host,
        )


def _illegal(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.ILLEGAL_OPERATION, remark)

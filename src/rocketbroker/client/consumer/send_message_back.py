"""Messages given back to the broker for a retry or as dead letters (DefaultMQPushConsumerImpl.sendMessageBack)."""

import logging

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.requests import check_success, client_request
from rocketbroker.codec.message.message_const import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
)
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.headers.message import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RocketBrokerError

log = logging.getLogger(__name__)

# Level of the first retry, 10 s by default.
_FIRST_RETRY_LEVEL = 3


class SendMessageBack:
    """Gives messages of one group back: by CONSUMER_SEND_MSG_BACK, else as a copy sent to the retry topic.

    Args:
        client: connections and routes.
        group: the consumer group.
        max_reconsume_times: retries before a message becomes a dead letter.
    """

    def __init__(self, client: ClientInstance, group: str, max_reconsume_times: int) -> None:
        self._client = client
        self._group = group
        self._max_reconsume_times = max_reconsume_times

    async def send_back(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> bool:
        """Give a message back; return false after logging if the broker takes it in neither way.

        Args:
            queue: the queue it was pulled from.
            message: the message.
            delay_level: level of the retry; 0 lets it grow with each retry, -1 makes a dead letter.
        """
        try:
            await self._by_offset(queue, message, delay_level)
        except RocketBrokerError as error:
            log.info("message %s of group %s: %s; sending a copy", message.offset_msg_id, self._group, error)
        else:
            return True
        try:
            await self._as_copy(queue, message, delay_level)
        except RocketBrokerError as error:
            log.warning("message %s of group %s was not sent back: %s", message.offset_msg_id, self._group, error)
            return False
        return True

    async def _by_offset(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.offset_msg_id,
            origin_topic=message.topic,
            max_reconsume_times=self._max_reconsume_times,
        )
        command = client_request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        check_success(await self._client.invoke_at_broker(queue, command))

    async def _as_copy(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> None:
        properties = dict(message.properties)
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.offset_msg_id)
        properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(delay_level or _FIRST_RETRY_LEVEL + message.reconsume_times)
        times = message.reconsume_times + 1
        if delay_level < 0:
            del properties[PROPERTY_DELAY_TIME_LEVEL]
            times = self._max_reconsume_times + 1
        topic = RETRY_GROUP_TOPIC_PREFIX + self._group
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=times,
            max_reconsume_times=self._max_reconsume_times,
            broker_name=queue.broker_name,
        )
        command = client_request(RequestCode.SEND_MESSAGE_V2, header, message.body)
        check_success(await self._client.invoke_at_broker(queue, command))

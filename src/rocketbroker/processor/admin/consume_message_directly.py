"""CONSUME_MESSAGE_DIRECTLY (309): one message for a chosen consumer (AdminBrokerProcessor.consumeMessageDirectly)."""

import msgspec

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import ConsumeMessageDirectlyResultRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.admin.call_consumer import ConsumerCalls
from rocketbroker.processor.support.name_check import check_known_group
from rocketbroker.store.read.message_queries import MessageQueries

Header = ConsumeMessageDirectlyResultRequestHeader


class ConsumeMessageDirectlyProcessor:
    """Passes the request on to the client that it names, with the message and the flags of topic and group."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        calls: ConsumerCalls,
        queries: MessageQueries,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._groups = groups
        self._calls = calls
        self._queries = queries

    async def process(self, _connection: Connection, command: RemotingCommand[Header]) -> Command:
        """Answer with the client's answer.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the group or the id is illegal; SYSTEM_ERROR if there is no such
                message or client; SYSTEM_BUSY if the client has too many open requests; CONSUME_MSG_TIMEOUT if it does
                not answer.
        """
        header = command.header
        check_known_group(header.consumer_group)
        # Checked first: the message may be long, and reading it blocks the loop.
        self._calls.check(header.consumer_group, header.client_id or "")
        record = self._record(header.msg_id or "")
        question = request(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._for_client(header), record)
        return await self._calls.call(header.consumer_group, header.client_id or "", question)

    def _record(self, msg_id: str) -> bytes:
        try:
            offset = decode_message_id(msg_id).offset
        except CodecError as error:
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"msgId of the request: {error}") from None
        record = self._queries.queued_message(offset)
        if record is None:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return record

    def _for_client(self, header: Header) -> Header:
        topic = self._topics.select(header.topic or "")
        # Only looked up: a request must not create a missing group.
        group = self._groups.groups.get(header.consumer_group)
        return msgspec.structs.replace(
            header,
            broker_name=self._broker_name,
            topic_sys_flag=header.topic_sys_flag if topic is None else topic.topic_sys_flag,
            group_sys_flag=header.group_sys_flag if group is None else group.group_sys_flag,
        )

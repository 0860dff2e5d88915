"""GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): the table of consumer groups, whole or by pages."""

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.admin.page import page_of


class GetAllSubscriptionGroupConfigProcessor:
    """Answers the groups, and the topics forbidden to them."""

    def __init__(self, groups: SubscriptionGroupManager, encoder: AnswerEncoder) -> None:
        self._encoder = encoder
        self._groups = groups

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetAllSubscriptionGroupRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the page is illegal.
        """
        header, groups = command.header, self._groups
        version = groups.data_version
        page = page_of(groups.groups, version, header.data_version, header.group_seq, header.max_group_num)
        forbidden = {name: topics for name, topics in groups.forbidden_table.items() if name in page}
        body = SubscriptionGroupWrapper(page, forbidden, version)
        return response(
            header=GetAllSubscriptionGroupResponseHeader(len(groups.groups)),
            body=await self._encoder.encode(body, len(page)),
        )

"""GET_ALL_TOPIC_CONFIG (21): the table of topics, whole or by pages (AdminBrokerProcessor.getAllTopicConfig)."""

from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfigAndMappingSerializeWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetAllTopicConfigRequestHeader, GetAllTopicConfigResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.admin.page import page_of


class GetAllTopicConfigProcessor:
    """Answers the topics, with empty mappings, since there are no static topics."""

    def __init__(self, topics: TopicConfigManager, encoder: AnswerEncoder) -> None:
        self._encoder = encoder
        self._topics = topics

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetAllTopicConfigRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the page is illegal.
        """
        header, topics = command.header, self._topics
        page = page_of(topics.topics, topics.data_version, header.data_version, header.topic_seq, header.max_topic_num)
        body = TopicConfigAndMappingSerializeWrapper(page, topics.data_version)
        return response(
            header=GetAllTopicConfigResponseHeader(len(topics.topics)), body=await self._encoder.encode(body, len(page))
        )

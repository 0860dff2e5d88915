"""GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206): every topic that has a route."""

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.namesrv.encoded_answers import EncodedAnswers
from rocketbroker.namesrv.topic_queue_table import TopicQueueTable


class GetAllTopicListFromNameserverProcessor:
    """Answers the list unless ``enableAllTopicList`` is off."""

    def __init__(self, config: NamesrvConfig, topic_queues: TopicQueueTable, answers: EncodedAnswers) -> None:
        self._config = config
        self._topic_queues = topic_queues
        self._answers = answers

    def process(self, connection: Connection, command: Command) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: The names do not fit into a frame.
        """
        if not self._config.enable_all_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        body = self._answers.list("all topics", lambda: TopicList(topic_list=self._topic_queues.topics()).encode())
        return response(body=body)

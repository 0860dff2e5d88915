"""GET_UNIT_TOPIC_LIST (311), GET_HAS_UNIT_SUB_TOPIC_LIST (312), GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313)."""

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.namesrv.encoded_answers import EncodedAnswers
from rocketbroker.namesrv.topic_queue_table import SYS_FLAG_UNIT, SYS_FLAG_UNIT_SUB, TopicQueueTable


class GetUnitTopicListProcessor:
    """Answers topics by their system flags, unless ``enableTopicList`` is off."""

    def __init__(self, config: NamesrvConfig, topic_queues: TopicQueueTable, answers: EncodedAnswers) -> None:
        self._config = config
        self._topic_queues = topic_queues
        self._answers = answers

    def process(self, connection: Connection, command: Command) -> Command:
        """Answer topics of units (311)."""
        return self._answer(SYS_FLAG_UNIT)

    def process_unit_sub(self, connection: Connection, command: Command) -> Command:
        """Answer topics that units subscribe to (312)."""
        return self._answer(SYS_FLAG_UNIT_SUB)

    def process_unit_sub_ununit(self, connection: Connection, command: Command) -> Command:
        """Answer topics of no unit that units subscribe to (313)."""
        return self._answer(SYS_FLAG_UNIT_SUB, without_flag=SYS_FLAG_UNIT)

    def _answer(self, with_flag: int, without_flag: int = 0) -> Command:
        if not self._config.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")

        def make() -> bytes:
            topics = self._topic_queues.topics_by_flag(with_flag=with_flag, without_flag=without_flag)
            return TopicList(topic_list=topics).encode()

        return response(body=self._answers.list(("topics by flag", with_flag, without_flag), make))

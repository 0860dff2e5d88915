"""UPDATE_CONSUMER_OFFSET (15): a group has consumed so far (ConsumerManageProcessor.updateConsumerOffset)."""

from rocketbroker.broker.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode

_SHOWN = 255


class UpdateConsumerOffsetProcessor:
    """Keeps the offset of a group and a topic that exist."""

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        subscription_groups: SubscriptionGroupManager,
        topic_configs: TopicConfigManager,
    ) -> None:
        self._offsets = offsets
        self._subscription_groups = subscription_groups
        self._topic_configs = topic_configs

    def process(self, _connection: Connection, command: RemotingCommand[UpdateConsumerOffsetRequestHeader]) -> Command:
        """Answer the request; -1 is kept too, it stands for nothing consumed."""
        header = command.header
        if not self._subscription_groups.contains(header.consumer_group):
            remark = f"Group {header.consumer_group[:_SHOWN]} not exist!"
            return response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark, {})
        topic = self._topic_configs.select(header.topic)
        if topic is None:
            return response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic[:_SHOWN]} not exist!", {})
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if not 0 <= header.queue_id < queues:
            remark = f"QueueId {header.queue_id} is illegal, topic {header.topic} has the queues 0 to {queues - 1}"
            return response(ResponseCode.INVALID_PARAMETER, remark, {})
        self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return response(header={})

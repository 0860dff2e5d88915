"""Removal of everything of a topic except its configuration: queues, offsets, counters."""

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.store.clean.topic_deletion import TopicDeletion


class TopicRemover:
    """Removes the queues of a topic, the offsets that groups have in it and its counters."""

    def __init__(self, offsets: ConsumerOffsetManager, deletion: TopicDeletion, stats: BrokerStatsManager) -> None:
        self._offsets = offsets
        self._deletion = deletion
        self._stats = stats

    async def remove(self, topic: str, consequence: str = "") -> None:
        """Remove the topic's parts; the remark of an error ends with ``consequence`` and the cause.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the disk failed; nothing was removed.
        """
        try:
            await self._deletion.delete_topics({topic})
        except (OSError, StoreError) as error:
            remark = f"the queues of topic {topic} cannot be removed{consequence}: {error}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark) from error
        self._offsets.remove_topic(topic)
        self._stats.remove_topic(topic)

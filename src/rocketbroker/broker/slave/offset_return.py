"""Return of consumer offsets that were committed at a slave while its master was dead."""

import logging
from typing import Final

from rocketbroker.broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager, OffsetTable
from rocketbroker.broker.slave.master_client import MasterClient

log = logging.getLogger(__name__)

#: Rounds after which an offset that the master does not take is given up.
MOST_ROUNDS: Final = 6


class OffsetReturn:
    """Sends such offsets to the master until its table has them.

    RocketMQ leaves this to the consumers, whose progress is lost if they stop before the master is back.

    Args:
        offsets: the offsets of this broker.
        client: sends commits to the master.
    """

    def __init__(self, offsets: ConsumerOffsetManager, client: MasterClient) -> None:
        self._offsets = offsets
        self._client = client
        self._rounds: dict[tuple[str, int], int] = {}

    async def send(self, of_master: OffsetTable) -> None:
        """Send the offsets that are ahead of the master's table; forget those that it has, or does not take.

        Raises:
            RemotingError: The master does not answer.
        """
        for key, queues in list(self._offsets.slave_commits.items()):
            for queue_id, offset in list(queues.items()):
                if of_master.get(key, {}).get(queue_id, -1) >= offset:
                    self._forget(key, queue_id)
                    continue
                rounds = self._rounds[key, queue_id] = self._rounds.get((key, queue_id), 0) + 1
                topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
                if rounds > MOST_ROUNDS:
                    text = "slave: the master does not take offset %d of group %s in topic %s, queue %d; it is given up"
                    log.error(text, offset, group, topic, queue_id)
                    self._forget(key, queue_id)
                    continue
                await self._client.commit(group, topic, queue_id, offset)

    def _forget(self, key: str, queue_id: int) -> None:
        self._rounds.pop((key, queue_id), None)
        self._offsets.forget_slave_commit(key, queue_id)

"""Return of consumer offsets that were committed at a slave while its master was dead."""

import logging
from typing import Final, NamedTuple

from rocketbroker.broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager, OffsetTable
from rocketbroker.broker.slave.master_client import MasterClient

log = logging.getLogger(__name__)

#: Times that an offset is sent before it is given up, as the master does not take it.
MOST_SENDS: Final = 6


class _Round(NamedTuple):
    """State of a queue in the last round: this broker's offset, the master's, and how often the former was sent."""

    offset: int
    at_master: int
    sends: int


class OffsetReturn:
    """Sends such offsets to the master until its table has them.

    RocketMQ leaves this to the consumers, whose progress is lost if they stop before the master is back. An offset is
    sent only while the master's stays the same for a round: else a consumer commits there again, and an older offset
    would set it back. A consumer that commits first between the round and the send is still set back, by the messages
    that it consumed in that moment.

    Args:
        offsets: the offsets of this broker.
        client: sends commits to the master.
    """

    def __init__(self, offsets: ConsumerOffsetManager, client: MasterClient) -> None:
        self._offsets = offsets
        self._client = client
        self._rounds: dict[tuple[str, int], _Round] = {}

    async def send(self, of_master: OffsetTable) -> None:
        """Send the offsets that are ahead of the master's table; forget those that it has, or does not take.

        Raises:
            RemotingError: The master does not answer.
        """
        for key, queues in list(self._offsets.slave_commits.items()):
            for queue_id, offset in list(queues.items()):
                at_master = of_master.get(key, {}).get(queue_id, -1)
                if at_master >= offset:
                    self._forget(key, queue_id)
                    continue
                last = self._rounds.get((key, queue_id))
                if last is None or last.at_master != at_master:
                    self._rounds[key, queue_id] = _Round(offset, at_master, 0)
                    continue
                sends = last.sends + 1 if last.offset == offset else 1
                self._rounds[key, queue_id] = _Round(offset, at_master, sends)
                topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
                if sends > MOST_SENDS:
                    log.error(
                        "SlaveSynchronize: the master does not take offset %d of group %s in topic %s, queue %d; it is "
                        "given up",
                        *(offset, group, topic, queue_id),
                    )
                    self._forget(key, queue_id)
                    continue
                await self._client.commit(group, topic, queue_id, offset)

    def _forget(self, key: str, queue_id: int) -> None:
        self._rounds.pop((key, queue_id), None)
        self._offsets.forget_slave_commit(key, queue_id)

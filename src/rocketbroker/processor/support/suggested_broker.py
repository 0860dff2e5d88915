"""Broker that a consumer is to pull from next: the master, or a slave for messages far back in the log.

See composeResponseHeader of PullMessageProcessor. RocketMQ's slave always sends consumers back to the master, even to a
dead one, unless it acts as master.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from rocketbroker.codec.remoting.headers.message import PullMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus
from rocketbroker.store.read.message_fetcher import MessageFetcher

# Results of an offset beyond the end of a queue, and of one on either side.
_BEYOND: Final = frozenset(
    {
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.NO_MESSAGE_IN_QUEUE,
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)
_OUTSIDE: Final = _BEYOND | {GetMessageStatus.OFFSET_TOO_SMALL}


class SuggestedBroker:
    """Answers ``suggestWhichBrokerId``.

    Args:
        config: ``slaveReadEnable``, and the id of this broker.
        fetcher: knows which messages are far back.
        has_master: returns true while the master of this slave answers.
        acting_as: returns the id by which consumers reach this slave while it acts as master, else ``None``.
    """

    def __init__(
        self,
        config: BrokerConfig,
        fetcher: MessageFetcher,
        has_master: Callable[[], bool],
        acting_as: Callable[[], int | None],
    ) -> None:
        self._config = config
        self._fetcher = fetcher
        self._has_master = has_master
        self._acting_as = acting_as

    def choose(self, header: PullMessageRequestHeader, result: GetMessageResult, group: SubscriptionGroupConfig) -> int:
        """Return the id for an answer."""
        config = self._config
        if config.slave_read_enable and self._is_far_back(header, result):
            return group.which_broker_when_consume_slowly
        if config.broker_id != MASTER_ID:
            if (acting_as := self._acting_as()) is not None:
                return acting_as
            return MASTER_ID if self._has_master() else config.broker_id
        return group.broker_id if config.slave_read_enable else MASTER_ID

    def adjust_on_slave(
        self, header: PullMessageRequestHeader, code: ResponseCode, result: GetMessageResult
    ) -> tuple[ResponseCode, GetMessageResult]:
        """Return code and result of a pull that found nothing on this slave.

        A consumer outside this slave's copy keeps its offset, as only the master knows where it has to continue: going
        to an end of the copy would repeat or skip messages (nextOffsetCorrection). Without a master one beyond the end
        waits.
        """
        status, offset = result.status, header.queue_offset
        if self._has_master():
            if status in _OUTSIDE:
                result = msgspec.structs.replace(result, next_begin_offset=offset)
            return ResponseCode.PULL_RETRY_IMMEDIATELY, result
        if status not in _BEYOND or offset <= result.max_offset:
            return code, result
        return ResponseCode.PULL_NOT_FOUND, msgspec.structs.replace(result, next_begin_offset=offset)

    def check_readable(self) -> None:
        """Reject a pull from a slave that serves none.

        Raises:
            BrokerResponseError: SYSTEM_BUSY, as clients then pull from the master.
        """
        if self._config.broker_id != MASTER_ID and not self._config.slave_read_enable:
            remark = "this slave serves no pulls: slaveReadEnable is false; pull from the master"
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)

    def _is_far_back(self, header: PullMessageRequestHeader, result: GetMessageResult) -> bool:
        """Return true if the last message found is further back than ``accessMessageInMemoryMaxRatio`` of memory."""
        last = result.next_begin_offset - 1
        return bool(result.message_count) and not self._fetcher.is_in_memory(header.topic, header.queue_id, last)

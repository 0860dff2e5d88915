"""Reads of a slave, around the processor of a master's pulls.

RocketMQ's slave always sends consumers back to the master, even to a dead one, unless it acts as master
(composeResponseHeader of PullMessageProcessor).
"""

from typing import Final, Protocol

import msgspec

from rocketbroker.broker.longpolling.pull_request import PullRequest
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.handler import Audience, Buffer, Connection, Held, InTurn
from rocketbroker.codec.remoting.headers.message import PullMessageRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.pull_message import Pull, PullCommand, PullMessageProcessor
from rocketbroker.processor.support.pull_accounts import PullAccounts
from rocketbroker.processor.support.pull_subscriptions import PullSubscriptions
from rocketbroker.processor.support.request_family import answers
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
_WITH_OWN_CODE: Final = frozenset({GetMessageStatus.FOUND, GetMessageStatus.OFFSET_RESET})


class SlaveState(Protocol):
    """State of a slave towards its master."""

    def has_master(self) -> bool:
        """Return true while the master answers; false while the slave acts as master."""

    def acting_as(self) -> int | None:
        """Return the id by which consumers reach this slave while it acts as master, else ``None``."""


class SlaveReads(PullMessageProcessor):
    """Pulls of a slave: of messages far back in the log, of all while the master is gone.

    Args:
        state: tells if there is a master.

    The other arguments are those of a master's processor.
    """

    def __init__(
        self,
        state: SlaveState,
        config: BrokerConfig,
        topic_configs: TopicConfigManager,
        subscriptions: PullSubscriptions,
        fetcher: MessageFetcher,
        accounts: PullAccounts,
        hold_service: PullRequestHoldService,
    ) -> None:
        super().__init__(config, topic_configs, subscriptions, fetcher, accounts, hold_service)
        self._state = state

    @answers(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, Audience.CLIENT)
    @answers(RequestCode.LITE_PULL_MESSAGE, PullMessageRequestHeader, Audience.CLIENT)
    def pull_message(
        self, connection: Connection, command: PullCommand, held: PullRequest | None = None
    ) -> list[Buffer] | InTurn | Held:
        """Process a pull as a master does, unless this slave serves none.

        Raises:
            BrokerResponseError: SYSTEM_BUSY without ``slaveReadEnable``, as clients then pull from the master; all
                errors of a master.
        """
        if not self._config.slave_read_enable:
            remark = "this slave serves no pulls: slaveReadEnable is false; pull from the master"
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        return super().pull_message(connection, command, held)

    def _finish(
        self, pull: Pull, result: GetMessageResult, code: ResponseCode | None = None, suggested: int | None = None
    ) -> list[Buffer] | Held:
        """Answer a pull or hold it, as a slave with or without a master.

        A consumer outside this slave's copy keeps its offset, as only the master knows where it has to continue: going
        to an end of the copy would repeat or skip messages (nextOffsetCorrection). While there is a master, no pull
        waits here. Without one, a pull beyond the end of the copy waits for the messages to come.
        """
        header, status, has_master = pull.command.header, result.status, self._state.has_master()
        offset = header.queue_offset
        if status not in _WITH_OWN_CODE:
            if has_master:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
                if status in _OUTSIDE:
                    result = msgspec.structs.replace(result, next_begin_offset=offset)
            elif status in _BEYOND and offset > result.max_offset:
                code = ResponseCode.PULL_NOT_FOUND
                result = msgspec.structs.replace(result, next_begin_offset=offset)
        last = result.next_begin_offset - 1
        if not result.message_count or self._fetcher.is_in_memory(header.topic, header.queue_id, last):
            acting_as = self._state.acting_as()
            suggested = acting_as if acting_as is not None else MASTER_ID if has_master else self._config.broker_id
        return super()._finish(pull, result, code, suggested)

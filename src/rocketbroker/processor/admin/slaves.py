"""Tables that slaves copy, and what master and slaves tell each other (AdminBrokerProcessor)."""

from collections.abc import Awaitable, Callable

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetTable
from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.slave_synchronize import CopiedTable
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.codec.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    HARuntimeInfo,
    MessageRequestModeSerializeWrapper,
    TimerMetricsSerializeWrapper,
)
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.long_answers import AnswerEncoder, LoopShare


class GetAllConsumerOffsetProcessor:
    """Answers the content of ``consumerOffset.json``, without resets; a slave adds the offsets committed at it."""

    def __init__(self, offsets: ConsumerOffsetManager, encoder: AnswerEncoder) -> None:
        self._encoder = encoder
        self._offsets = offsets

    async def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        offsets = self._offsets
        share = LoopShare()
        body = ConsumerOffsetSerializeWrapper(
            await _copy(offsets.table, share),
            offsets.data_version,
            await _copy(offsets.pull_table, share),
            offsets.group_topic_map(),
        )
        if (commits := offsets.returned_commits) is not None:
            body.slave_commit_table = await _copy(commits, share)
        return response(
            body=await self._encoder.encode(body, len(body.offset_table) + len(body.pull_offset_table or ()))
        )


async def _copy(table: OffsetTable, share: LoopShare) -> OffsetTable:
    copy = {}
    for key, queues in list(table.items()):
        copy[key] = dict(queues)
        await share.turn()
    return copy


class GetAllDelayOffsetProcessor:
    """Answers the content of ``delayOffset.json``."""

    def __init__(self, schedule: ScheduleMessageService) -> None:
        self._schedule = schedule

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        table = dict(sorted(self._schedule.offset_table.items()))
        return response(body=DelayOffsetSerializeWrapper(table, self._schedule.data_version).encode())


class GetTimerCheckPointProcessor:
    """Answers the deliveries whose copies are on disk, in the format of ``config/timercheck``."""

    def __init__(self, timer: TimerMessageStore) -> None:
        self._timer = timer

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=self._timer.checkpoint().encode())


class GetTimerMetricsProcessor:
    """Answers an empty table, since this timer does not count by topic; a slave answers its master's."""

    def __init__(self, metrics: CopiedTable[TimerMetricsSerializeWrapper]) -> None:
        self._metrics = metrics

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=self._metrics.content.encode())


class GetAllMessageRequestModeProcessor:
    """Answers an empty table, since all groups pull; a slave answers its master's."""

    def __init__(self, modes: CopiedTable[MessageRequestModeSerializeWrapper]) -> None:
        self._modes = modes

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=self._modes.content.encode())


# EXCHANGE_BROKER_HA_INFO (906): addresses of a master (AdminBrokerProcessor.updateBrokerHaInfo).
#
# A master sends them to its slaves before it registers, and waits until they have compared their logs with its own. A
# slave may ask for them.


class ExchangeBrokerHaInfoProcessor:
    """Answers the own addresses at a master; takes those of the master at a slave.

    Args:
        own_info: returns the addresses of this master; ``None`` at a slave.
        hand_over: called at a slave with its master; returns once the slave has handed over.
    """

    def __init__(
        self,
        own_info: Callable[[], ExchangeHAInfoResponseHeader | None],
        hand_over: Callable[[Master], Awaitable[None]],
    ) -> None:
        self._own_info = own_info
        self._hand_over = hand_over

    async def process(self, _connection: Connection, command: RemotingCommand[ExchangeHAInfoRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if this broker is a master itself; otherwise as ``hand_over``.
        """
        header, own = command.header, self._own_info()
        if header.master_ha_address is None:
            return response(header=own)
        if own is not None:
            remark = f"this broker is a master itself, and follows no master at {header.master_address}"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        await self._hand_over(Master(header.master_address or "", header.master_ha_address))
        return response()


class NotifyMinBrokerIdChangeProcessor:
    """Asks the name servers of a slave soon; their answers count, not the notice."""

    def __init__(self, sync_soon: Callable[[], None]) -> None:
        self._sync_soon = sync_soon

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        self._sync_soon()
        return response()


class GetBrokerHaStatusProcessor:
    """Answers the slaves of a master, or the copying of a slave."""

    def __init__(self, ha_status: Callable[[], HARuntimeInfo]) -> None:
        self._ha_status = ha_status

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=self._ha_status().encode())

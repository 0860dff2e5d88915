"""Tables that slaves copy, and notices between a master and its slaves (AdminBrokerProcessor)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetTable
from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.slave_synchronize import TimerMetrics
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.codec.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    HARuntimeInfo,
)
from rocketbroker.codec.remoting.bodies.pop import MessageRequestModeSerializeWrapper
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.admin import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.long_answers import AnswerEncoder, LoopShare
from rocketbroker.processor.support.request_family import answers


@dataclass(frozen=True, slots=True)
class SlaveRequests:
    """Requests between a master and its slaves; topics and groups, which slaves copy too, are in their families.

    Attributes:
        offsets: progress of groups.
        schedule: progress of the delay levels.
        timer: progress of the timer.
        timer_metrics: counts of the master, as a slave keeps them.
        request_modes: delivery modes of groups.
        ha_status: returns the state of replication.
        look_for_members: has this slave ask the name servers for the live brokers of its name.
        own_ha_info: returns the addresses of this master; ``None`` at a slave.
        hand_over: called at a slave with its master; returns once the slave has handed over.
        encoder: encoder of long answers.
    """

    offsets: ConsumerOffsetManager
    schedule: ScheduleMessageService
    timer: TimerMessageStore
    timer_metrics: TimerMetrics
    request_modes: MessageRequestModeManager
    ha_status: Callable[[], HARuntimeInfo]
    look_for_members: Callable[[], None]
    own_ha_info: Callable[[], ExchangeHAInfoResponseHeader | None]
    hand_over: Callable[[Master], Awaitable[None]]
    encoder: AnswerEncoder

    @answers(RequestCode.GET_ALL_CONSUMER_OFFSET, audience=Audience.BROKER)
    async def get_all_consumer_offset(self, _connection: Connection, _command: Command) -> Command:
        """Answer the content of ``consumerOffset.json``, without resets; a slave adds the offsets committed at it."""
        share = LoopShare()
        body = ConsumerOffsetSerializeWrapper(
            await _copy(self.offsets.table, share),
            self.offsets.data_version,
            await _copy(self.offsets.pull_table, share),
            self.offsets.group_topic_map(),
        )
        if (commits := self.offsets.returned_commits) is not None:
            body.slave_commit_table = await _copy(commits, share)
        entries = len(body.offset_table) + len(body.pull_offset_table or ())
        return response(body=await self.encoder.encode(body, entries))

    @answers(RequestCode.GET_ALL_DELAY_OFFSET, audience=Audience.BROKER)
    def get_all_delay_offset(self, _connection: Connection, _command: Command) -> Command:
        """Answer the content of ``delayOffset.json``: the progress of each delay level."""
        table = dict(sorted(self.schedule.offset_table.items()))
        return response(body=DelayOffsetSerializeWrapper(table, self.schedule.data_version).encode())

    @answers(RequestCode.GET_TIMER_CHECK_POINT, audience=Audience.BROKER)
    def get_timer_check_point(self, _connection: Connection, _command: Command) -> Command:
        """Answer the deliveries whose copies are on disk, in the format of ``config/timercheck``."""
        return response(body=self.timer.checkpoint().encode())

    @answers(RequestCode.GET_TIMER_METRICS, audience=Audience.BROKER)
    def get_timer_metrics(self, _connection: Connection, _command: Command) -> Command:
        """Answer the number of waiting timer messages by topic; a slave answers its master's."""
        metrics = self.timer.metrics()
        return response(body=(self.timer_metrics.content if metrics is None else metrics).encode())

    @answers(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, audience=Audience.BROKER)
    def get_all_message_request_mode(self, _connection: Connection, _command: Command) -> Command:
        """Answer the content of ``messageRequestMode.json``: the modes set by SET_MESSAGE_REQUEST_MODE."""
        return response(body=MessageRequestModeSerializeWrapper(self.request_modes.table).encode())

    @answers(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader, Audience.BROKER)
    async def exchange_broker_ha_info(
        self, _connection: Connection, command: RemotingCommand[ExchangeHAInfoRequestHeader]
    ) -> Command:
        """Answer the own addresses at a master; take those of the master at a slave.

        A master sends them to its slaves before it registers, and waits until they have compared their logs with its
        own. A slave may ask for them.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if this broker is a master itself; otherwise as ``hand_over``.
        """
        header, own = command.header, self.own_ha_info()
        if header.master_ha_address is None:
            return response(header=own)
        if own is not None:
            remark = f"this broker is a master itself, and follows no master at {header.master_address}"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        await self.hand_over(Master(header.master_address or "", header.master_ha_address))
        return response()

    @answers(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, audience=Audience.BROKER)
    def notify_min_broker_id_change(self, _connection: Connection, _command: Command) -> Command:
        """Make a slave ask the name servers soon: their answers count, not this notice of another smallest id."""
        self.look_for_members()
        return response()

    @answers(RequestCode.GET_BROKER_HA_STATUS)
    def get_broker_ha_status(self, _connection: Connection, _command: Command) -> Command:
        """Answer the slaves of a master, or the copying of a slave."""
        return response(body=self.ha_status().encode())


async def _copy(table: OffsetTable, share: LoopShare) -> OffsetTable:
    copy = {}
    for key, queues in list(table.items()):
        copy[key] = dict(queues)
        await share.turn()
    return copy

"""A master for tests of slaves: real tables, or the answers that a test sets."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.slave.master_client import LogState
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.handler import Connection, MethodTable
from rocketbroker.codec.remoting.headers.admin import (
    ExchangeHAInfoRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import UpdateConsumerOffsetRequestHeader, ViewMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.admin.groups import GroupRequests
from rocketbroker.processor.admin.slaves import SlaveRequests
from rocketbroker.processor.admin.topics import TopicRequests
from rocketbroker.processor.support.long_answers import AnswerEncoder
from rocketbroker.transport.remoting_server import RemotingServer
from tests.support.fakes import FakeClock
from tests.support.processor_calls import family

CONFIG = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1")


class FakeMaster:
    """Server on a free port of 127.0.0.1.

    ``bodies`` are answers by code, instead of those of the tables. ``log`` is the state of its log, ``records`` are in
    it by their offset, and ``before_state`` and ``before_record`` are called before it answers them. ``commits`` are
    the offsets that it received, and ``announced`` the HA addresses and addresses of masters, answered by
    ``announce_answer``.
    """

    def __init__(self, folder: Path) -> None:
        clock = FakeClock()
        self._executor = ThreadPoolExecutor(1)
        encoder = AnswerEncoder(CONFIG, self._executor)
        self.topics = TopicConfigManager(folder / "topics.json", CONFIG, clock)
        self.groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", CONFIG, clock)
        self.offsets = ConsumerOffsetManager(folder / "consumerOffset.json", clock)
        self.bodies: dict[RequestCode, bytes] = {
            RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{}}',
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: b'{"messageRequestModeMap":{}}',
            RequestCode.GET_TIMER_CHECK_POINT: TimerCheckpoint().encode(),
            RequestCode.GET_TIMER_METRICS: b'{"timingCount":{}}',
        }
        self.log = LogState("1", 0)
        self.records: dict[int, bytes] = {}
        self.before_state = self.before_record = lambda: None
        self.announce_answer = response()
        self.announced: list[tuple[str | None, str | None]] = []
        self.commits: list[UpdateConsumerOffsetRequestHeader] = []
        table = MethodTable()
        topics = family(TopicRequests, topics=self.topics, encoder=encoder)
        groups = family(GroupRequests, groups=self.groups, encoder=encoder)
        offsets = family(SlaveRequests, offsets=self.offsets, encoder=encoder)
        for code, process, header in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, topics.get_all_topic_config, GetAllTopicConfigRequestHeader),
            (
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                groups.get_all_subscriptiongroup_config,
                GetAllSubscriptionGroupRequestHeader,
            ),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, offsets.get_all_consumer_offset, None),
        ):
            table.add(code, self._instead(code, process), header)
        for code in list(self.bodies):
            table.add(code, self._instead(code, None))
        table.add(
            RequestCode.GET_BROKER_RUNTIME_INFO, self._instead(RequestCode.GET_BROKER_RUNTIME_INFO, self._answer_state)
        )
        table.add(RequestCode.VIEW_MESSAGE_BY_ID, self._answer_record, ViewMessageRequestHeader)
        table.add(RequestCode.UPDATE_CONSUMER_OFFSET, self._commit, UpdateConsumerOffsetRequestHeader)
        table.add(RequestCode.EXCHANGE_BROKER_HA_INFO, self._announce, ExchangeHAInfoRequestHeader)
        self.server = RemotingServer(table.routes, host="127.0.0.1")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def start(self) -> None:
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()
        self._executor.shutdown()

    def _instead(self, code, process):
        async def answer(connection: Connection, command: Command) -> Command:
            body = self.bodies.get(code)
            return await process(connection, command) if body is None else response(body=body)

        return answer

    async def _answer_state(self, _connection: Connection, _command: Command) -> Command:
        self.before_state()
        started, end = self.log
        return response(body=KVTable({"bootTimestamp": started, "commitLogMaxOffset": str(end)}).encode())

    def _answer_record(self, _connection: Connection, command: Command) -> Command:
        self.before_record()
        record = self.records.get(command.header.offset)
        return response(body=record) if record else response(ResponseCode.SYSTEM_ERROR, "can not find message")

    def _announce(self, _connection: Connection, command: Command) -> Command:
        self.announced.append((command.header.master_ha_address, command.header.master_address))
        return self.announce_answer

    def _commit(self, _connection: Connection, command: Command) -> Command:
        self.commits.append(command.header)
        header = command.header
        self.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return response()

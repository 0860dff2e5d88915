"""The parts of a broker that serve POP, over a store, and a consumer that calls their processors."""

import inspect
from pathlib import Path
from typing import NamedTuple

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetRecovery
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.broker.pop.pop_queues import PopQueues
from rocketbroker.broker.pop.pop_recovery import PopRecovery
from rocketbroker.broker.pop.pop_revive_service import PopReviveService
from rocketbroker.broker.timer.timer_message_store import TimerBypass
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.pop_info import (
    ExtraInfo,
    PoppedQueue,
    decode_extra_info,
    parse_msg_offset_info,
    parse_start_offset_info,
    pop_retry_topic,
    revive_topic,
)
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.frame import LENGTH, decode_frame
from rocketbroker.codec.remoting.handler import InTurn, Process
from rocketbroker.codec.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import (
    Command,
    CommandCustomHeader,
    RemotingCommand,
    from_ext_fields,
    request,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.processor.ack_message import AckMessageRequests
from rocketbroker.processor.pop_message import PopMessageProcessor
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.pop_checks import PopChecks
from rocketbroker.processor.support.pull_subscriptions import PullSubscriptions
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.recorded_script import nothing_to_wait_for
from tests.support.stores import V4_HOST, message, store_config

TOPIC = "T"
QUEUE_NUMS = 2
PRECISION_MS = 100


class Handed(NamedTuple):
    """A message as a pop delivered it; ``handle`` is its POP_CK."""

    message: MessageExt
    handle: str

    @property
    def info(self) -> ExtraInfo:
        """Fields of the handle."""
        return decode_extra_info(self.handle)

    @property
    def body(self) -> bytes:
        """Body of the message."""
        return bytes(self.message.body)


class PopBroker:
    """A store and what POP needs of a broker; tables are written where they are submitted.

    Args:
        root: folder of the store, which may have files.
        clock: decides what is due.
        file_system: the disk.
        config: settings of the broker.
        store: settings of the store.
    """

    def __init__(
        self,
        root: Path,
        clock: FakeClock | None = None,
        file_system: FileSystem = LOCAL,
        config: BrokerConfig | None = None,
        **store: object,
    ) -> None:
        def write(table: AnyConfigManager) -> None:
            table.begin_write()
            replace_contents(table.path, table.encode(), file_system)
            table.written()

        self.clock = clock = clock or FakeClock()
        self.config = config = config or BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1")
        settings = store_config(root, **store)
        self.folder = folder = settings.config_dir
        self.topics = TopicConfigManager(folder / "topics.json", config, clock, write)
        self.groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config, clock, write)
        self.offsets = ConsumerOffsetManager(folder / "consumerOffset.json", clock, write)
        self.polling = PopLongPollingService(config)
        self.store = MessageStore(settings, V4_HOST, NoListener(), clock, file_system, self.topics.topics)
        self.orders = ConsumerOrderInfoManager(
            folder / "consumerOrderInfo.json", clock, self._read_queue_nums, self.groups.contains, write
        )
        self.bypass = TimerBypass(revive_topic("C"))
        opened = self.store
        self.check_points = PopCheckPoints(
            PopQueues(self.offsets, opened.flusher),
            opened.appender,
            opened.queues,
            opened.flusher,
            self.offsets,
            self.orders,
            clock,
            bypass=self.bypass,
            precision_ms=lambda: PRECISION_MS,
            broker_name=config.broker_name,
            store_host=V4_HOST,
        )
        self.recovery = PopRecovery(
            self.check_points,
            opened.queues,
            opened.entry_reader,
            self.offsets,
            self.orders,
            opened.flusher,
            clock,
            folder / "timercheck",
        )
        self.stats = BrokerStatsManager(clock, "C")
        self.revive = PopReviveService(
            config,
            self.check_points,
            opened.queues,
            opened.entry_reader,
            opened.appender,
            self.topics,
            self.groups,
            self.offsets,
            self.stats,
            clock,
            V4_HOST,
        )
        self.reset = OffsetReset(
            config, self.offsets, PullRequestHoldService(config), self.polling, nothing_to_wait_for
        )
        filters = ConsumerFilterManager(folder / "consumerFilter.json", config, clock)
        self.consumers = consumers = ConsumerManager(clock, 120.0, lambda _info: None, filters.unregister)
        self.subscriptions = PullSubscriptions(config, consumers, self.groups, filters)
        self.pops = PopMessageProcessor(
            config=config,
            checks=PopChecks(config, settings, self.topics, self.groups),
            topics=self.topics,
            consumers=consumers,
            subscriptions=self.subscriptions,
            fetcher=opened.fetcher,
            check_points=self.check_points,
            offsets=self.offsets,
            orders=self.orders,
            polling=self.polling,
            stats=self.stats,
            send_backs=SendBackAllowance(config, clock),
            clock=clock,
        )
        self.acks = AckMessageRequests(
            topics=self.topics,
            fetcher=opened.fetcher,
            check_points=self.check_points,
            offsets=self.offsets,
            orders=self.orders,
            polling=self.polling,
            acknowledgements=opened.acknowledgements,
            fast_failure=BrokerFastFailure(config),
            stats=self.stats,
            clock=clock,
        )

    def _read_queue_nums(self, topic: str) -> int | None:
        found = self.topics.select(topic)
        return None if found is None else found.read_queue_nums

    async def start(self) -> None:
        """Load the tables, open the store and recover, in the order of a broker's start."""
        for table in (self.topics, self.groups, self.offsets, self.orders):
            table.load()
        await self.store.start()
        await OffsetRecovery(self.offsets, self.store.queues, nothing_to_wait_for).start()
        if self.topics.select(TOPIC) is None:
            self.topics.update(TopicConfig(TOPIC, QUEUE_NUMS, QUEUE_NUMS))
        await self.recovery.start()
        self.store.appender.dispatch()

    async def stop(self) -> None:
        """Stop, as a broker does, in reverse order."""
        await self.recovery.stop()
        self.offsets.flush()
        await self.store.stop()

    async def sync(self) -> None:
        """Bring the log to disk, and make readable what waited for that."""
        assert (await self.store.flusher.sync()).ok
        self.store.appender.dispatch()

    async def run(self) -> None:
        """Let all return that is due, and note the place."""
        while await self.revive.advance() == 0.0:
            pass

    # -- clients

    def send(self, body: bytes = b"body", queue_id: int = 0, topic: str = TOPIC, **properties: str) -> int:
        """Store a message; return its queue offset."""
        result = self.store.appender.put_message(message(body, topic, queue_id, properties=properties))
        assert result.status is PutMessageStatus.PUT_OK
        self.store.appender.dispatch()
        return result.queue_offset

    async def call(
        self, process: Process, header: CommandCustomHeader | None, body: bytes = b"", code: RequestCode | int = 0
    ) -> Command:
        """Return the answer to a request, once it may be given."""
        answer = process(FakeConnection(), request(code, header, body))
        if isinstance(answer, InTurn):
            answer = answer.work
        if inspect.isawaitable(answer):
            answer = await answer
        # As at the end of a read event.
        self.store.appender.dispatch()
        return as_command(answer)

    async def pop(
        self, group: str = "G", queue_id: int = -1, most: int = 32, invisible_ms: int = 60_000, **fields: object
    ) -> list[Handed]:
        """Pop messages and return them with their handles; an empty list if there is none."""
        names: dict[str, object] = {"poll_time": 0, "born_time": 0, "init_mode": 0} | fields
        topic = str(names.pop("topic", TOPIC))
        header = PopMessageRequestHeader(group, topic, queue_id, most, invisible_ms, **names)  # type: ignore[arg-type]
        answer = await self.call(self.pops.pop_message, header)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return []
        assert answer.code == ResponseCode.SUCCESS, answer
        return handed(answer, header, self.config.broker_name)

    async def ack(self, group: str, found: Handed) -> Command:
        """Acknowledge a message."""
        info = found.info
        header = AckMessageRequestHeader(group, stored_in(group, info), info.queue_id, found.handle, info.queue_offset)
        return await self.call(self.acks.ack_message, header)

    async def change(self, group: str, found: Handed, invisible_ms: int, *, suspend: bool = False) -> Handed:
        """Let a message return at another time; return it with its new handle."""
        info = found.info
        where = stored_in(group, info), info.queue_id
        header = ChangeInvisibleTimeRequestHeader(
            group, *where, found.handle, info.queue_offset, invisible_ms, suspend=suspend
        )
        answer = await self.call(self.acks.change_message_invisibletime, header)
        fields = answer.header
        assert isinstance(fields, ChangeInvisibleTimeResponseHeader)
        new = info._replace(
            ck_queue_offset=info.ck_queue_offset if info.is_order else info.queue_offset,
            pop_time=fields.pop_time,
            invisible_time=fields.invisible_time,
        )
        return Handed(found.message, new.encode())


def as_command(answer: object) -> Command:
    """Return an answer, that of a pop which found messages or of an acknowledgement decoded from its frame."""
    if isinstance(answer, RemotingCommand):
        return answer
    assert isinstance(answer, bytes | list), answer
    command = decode_frame(memoryview(b"".join(answer) if isinstance(answer, list) else answer)[LENGTH.size :])
    if command.header is not None:
        command.header = from_ext_fields(command.header, PopMessageResponseHeader)
    return command


def stored_in(group: str, info: ExtraInfo, topic: str = TOPIC) -> str:
    """Return the topic that stores the message of a handle."""
    return topic if info.retry == "0" else pop_retry_topic(topic, group, int(info.retry))


def handed(answer: Command, asked: PopMessageRequestHeader, broker: str = "broker-a") -> list[Handed]:
    """Return the messages of an answer to a pop, with the handles that a client makes."""
    header = answer.header
    assert isinstance(header, PopMessageResponseHeader)
    starts = parse_start_offset_info(header.start_offset_info or "")
    named = parse_msg_offset_info(header.msg_offset_info or "")
    found, by_queue = [], dict[PoppedQueue, list[int]]()
    for each in decode_messages(b"".join([answer.body]), decompress=False):
        own = get_property(each.properties_bytes, b"POP_CK")
        if own is None:
            start = starts[PoppedQueue("0", each.queue_id)]
            times = header.pop_time, header.invisible_time, header.revive_qid
            handle = ExtraInfo(start, *times, "0", broker, each.queue_id, each.queue_offset)
        else:
            handle = decode_extra_info(own.decode())
        by_queue.setdefault(PoppedQueue(handle.retry, handle.queue_id), []).append(each.queue_offset)
        found.append(Handed(each, handle.encode()))
        assert each.topic == asked.topic
    assert by_queue == named, "the texts name other messages than the body has"
    return found

"""Lookups and pulls against scripted servers, and the order of pulls ahead without any."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.analytics.spark import broker_queues
from rocketbroker.analytics.spark.broker_queues import BrokerQueues, Pulled, QueueEnd, QueuePuller, pull_range
from rocketbroker.analytics.spark.offset_options import Subscription
from rocketbroker.client.core.errors import NoPermissionError, TopicRouteError
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketbroker.codec.remoting.headers.message import PullMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingError, RocketBrokerError, StoreError
from tests.support.fake_queues import record
from tests.support.scripted_server import Script, ScriptedServer, header_of

QUEUE = MessageQueue("T", "broker-a", 1)
MASTER, SLAVE = 0, 1
TWO = record(QUEUE, 7) + record(QUEUE, 8)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_queues, "PATIENCE_S", 0.0)
    monkeypatch.setattr(broker_queues, "RETRY_S", 0.01)


class Cluster:
    """A name server and a broker with a slave; ``pulls`` are the answers to the next pulls, of both."""

    def __init__(self) -> None:
        self.pulls: list[Command] = []
        self.with_master = True
        self.hidden = 0  # requests for a route that find none
        self.topics = ["T"]
        self.name_server = ScriptedServer(
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.GET_BROKER_CLUSTER_INFO: lambda _fields, _body: response(body=self._info().encode()),
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda _fields, _body: response(
                    body=TopicList(topic_list=self.topics).encode()
                ),
            }
        )
        pull: Script = lambda _fields, _body: self.pulls.pop(0)  # noqa: E731
        offset: Script = lambda fields, _body: response(header={"offset": 10 + int(fields["queueId"])})  # noqa: E731
        offsets = (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
        self.brokers = [
            ScriptedServer({RequestCode.PULL_MESSAGE: pull, **dict.fromkeys(offsets, offset)}) for _ in "ms"
        ]

    def _data(self) -> BrokerData:
        addresses = {number: broker.address for number, broker in enumerate(self.brokers)}
        if not self.with_master:
            del addresses[MASTER]
        return BrokerData("C", "broker-a", addresses)

    def _info(self) -> ClusterInfo:
        return ClusterInfo({"broker-a": self._data()}, {"C": ["broker-a"]})

    def _route(self, fields: dict[str, str], _body: bytes) -> Command:
        self.hidden -= 1
        if self.hidden >= 0 or fields["topic"] not in self.topics:
            return response(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        queues = QueueData("broker-a", 2, 3, 6)
        return response(body=TopicRouteData(queue_datas=[queues], broker_datas=[self._data()]).encode())

    def asked(self) -> list[tuple[int, int]]:
        """Return broker id and offset of each pull, in no order across brokers."""
        return [
            (number, int(each.fields["queueOffset"]))
            for number, broker in enumerate(self.brokers)
            for each in broker.of(RequestCode.PULL_MESSAGE)
        ]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    async with made.name_server, made.brokers[0], made.brokers[1]:
        yield made


@pytest.fixture
async def brokers(cluster: Cluster) -> AsyncIterator[BrokerQueues]:
    async with BrokerQueues(cluster.name_server.address) as made:
        yield made


def answer(
    code: int, following: int, low: int = 0, high: int = 100, body: bytes = b"records", suggested: int = 0
) -> Command:
    return response(code, header=header_of(PullMessageResponseHeader(suggested, following, low, high)), body=body)


async def test_a_pattern_leaves_out_what_is_of_rocketmq_itself(cluster: Cluster, brokers: BrokerQueues):
    own = ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%RETRY%G", "%DLQ%G", "%LMQ%q"]
    cluster.topics = ["T", "T2", "U", "broker-a", "C", "C_REPLY_TOPIC", *own]
    assert set(await brokers.topics(Subscription(pattern=".*"))) == {"T", "T2", "U"}
    assert set(await brokers.topics(Subscription(pattern="T."))) == {"T2"}
    assert set(await brokers.topics(Subscription(frozenset({"%RETRY%G", "none"})))) == {"%RETRY%G", "none"}


async def test_queues_and_their_offsets(cluster: Cluster, brokers: BrokerQueues):
    queues = await brokers.queues(["T", "none"])
    assert queues == [MessageQueue("T", "broker-a", number) for number in range(2)]
    assert await brokers.max_offsets(queues) == {queues[0]: QueueEnd(10, True), queues[1]: QueueEnd(11, True)}
    assert await brokers.min_offsets(queues) == {queues[0]: 10, queues[1]: 11}
    assert await brokers.offsets_at([(queues[1], 5)]) == {(queues[1], 5): 11}
    assert not cluster.brokers[SLAVE].asked
    assert not [each for each in cluster.brokers[MASTER].asked if each.code == RequestCode.HEART_BEAT]


async def test_a_slave_answers_in_place_of_its_master(cluster: Cluster, brokers: BrokerQueues):
    cluster.with_master = False
    assert await brokers.max_offsets(await brokers.queues(["T"])) == {
        MessageQueue("T", "broker-a", number): QueueEnd(10 + number, False) for number in range(2)
    }


async def test_lookups_end_with_the_first_error(cluster: Cluster, brokers: BrokerQueues):
    queues = await brokers.queues(["T"])
    await cluster.brokers[MASTER].stop()
    with pytest.raises(RemotingError, match="connect to"):
        await brokers.min_offsets(queues * 500)


async def test_a_pull_names_the_group_and_goes_where_the_last_answer_said(cluster: Cluster, brokers: BrokerQueues):
    cluster.pulls = [answer(0, 7, suggested=SLAVE), answer(0, 9, body=TWO)]
    puller = QueuePuller(brokers, QUEUE, "G")
    assert await puller.pull(5, 2) == Pulled(b"records", 7)
    assert await puller.pull(7, 2) == Pulled(TWO, 9)
    assert cluster.asked() == [(MASTER, 5), (SLAVE, 7)]
    (asked,) = cluster.brokers[SLAVE].of(RequestCode.PULL_MESSAGE)
    wanted = {"consumerGroup": "G", "queueId": "1", "maxMsgNums": "2", "subscription": "*", "sysFlag": "4"}
    assert wanted.items() <= asked.fields.items()


@pytest.mark.parametrize(
    ("found", "following"),
    [
        (answer(ResponseCode.PULL_OFFSET_MOVED, 60, low=60, body=b""), 60),
        (answer(ResponseCode.PULL_RETRY_IMMEDIATELY, 8, body=b""), 8),
        (answer(ResponseCode.PULL_NOT_FOUND, 70, body=b""), 70),
    ],
)
async def test_messages_that_are_gone_are_passed(
    cluster: Cluster, brokers: BrokerQueues, found: Command, following: int
):
    cluster.pulls = [found]
    assert await QueuePuller(brokers, QUEUE, "G").pull(5, 2) == Pulled(b"", following)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (answer(ResponseCode.PULL_OFFSET_MOVED, 3, high=3), "queue 1 of T at broker-a ends at 3, before offset 5 that"),
        (answer(ResponseCode.PULL_NOT_FOUND, 5, high=5), "ends at 5, before offset 5"),
        (answer(ResponseCode.PULL_OFFSET_MOVED, 50), "the broker has offset 5, but does not return its message"),
        (answer(0, 5), "does not return its message"),
    ],
)
async def test_a_queue_without_the_offset_is_an_error(
    cluster: Cluster, brokers: BrokerQueues, found: Command, message: str
):
    cluster.pulls = [found]
    with pytest.raises(StoreError, match=message):
        await QueuePuller(brokers, QUEUE, "G").pull(5, 2)


async def test_a_slave_is_not_believed_that_messages_are_gone(
    cluster: Cluster, brokers: BrokerQueues, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(broker_queues, "PATIENCE_S", 30.0)
    moved = answer(ResponseCode.PULL_OFFSET_MOVED, 60, low=60, body=b"")
    puller = QueuePuller(brokers, QUEUE, "G")
    for lacking in (moved, answer(0, 8, body=TWO)):
        cluster.pulls = [answer(0, 5, suggested=SLAVE), lacking, answer(0, 8)]
        await puller.pull(4, 1)
        assert await puller.pull(5, 3) == Pulled(b"records", 8)
    assert cluster.asked() == [(MASTER, 4), (MASTER, 5)] * 2 + [(SLAVE, 5)] * 2
    monkeypatch.setattr(broker_queues, "PATIENCE_S", 0.0)
    cluster.with_master, cluster.pulls = False, [moved]
    await brokers.read_route("T")
    with pytest.raises(StoreError, match="the slave with id 1 lacks messages from offset 5 on, and has no master"):
        await puller.pull(5, 2)


async def test_a_broker_that_is_away_is_asked_again(
    cluster: Cluster, brokers: BrokerQueues, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(broker_queues, "PATIENCE_S", 30.0)
    cluster.hidden = 2
    cluster.pulls = [response(ResponseCode.SYSTEM_BUSY, "busy"), answer(0, 7)]
    assert await QueuePuller(brokers, QUEUE, "G").pull(5, 2) == Pulled(b"records", 7)
    assert len(cluster.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 4


@pytest.mark.parametrize(
    ("refused", "kind"),
    [
        (response(ResponseCode.NO_PERMISSION, "no"), NoPermissionError),
        (response(ResponseCode.SYSTEM_BUSY), RocketBrokerError),
    ],
)
async def test_a_refusal_is_an_error(
    cluster: Cluster, brokers: BrokerQueues, refused: Command, kind: type[RocketBrokerError]
):
    cluster.pulls = [refused]
    with pytest.raises(kind):
        await QueuePuller(brokers, QUEUE, "G").pull(5, 2)
    cluster.topics = []
    brokers.forget_route("T")
    with pytest.raises(RocketBrokerError, match="broker-a is in no route of topic T"):
        await QueuePuller(brokers, QUEUE, "G").pull(5, 2)


class Queue:
    """A queue that gives few messages at once, and lacks some offsets."""

    def __init__(self, given: list[int], missing: set[int]) -> None:
        self._given = given
        self._missing = missing
        self.asked: list[tuple[int, int]] = []
        self.under_way = self.most_under_way = 0

    async def pull(self, offset: int, count: int) -> Pulled:
        self.asked.append((offset, count))
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        try:
            for _ in range(offset % 3):
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        end = offset + min(count, self._given[offset % len(self._given)])
        while end in self._missing:  # an answer may go further than was asked
            end += 1
        return Pulled(b"".join(b"%d," % each for each in range(offset, end) if each not in self._missing), end)


@given(
    low=st.integers(0, 50),
    size=st.integers(0, 700),
    given_counts=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    missing=st.sets(st.integers(0, 700), max_size=40),
)
def test_messages_come_in_order_whatever_answers_hold(low: int, size: int, given_counts: list[int], missing: set[int]):
    queue, high = Queue(given_counts, missing), low + size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_queues, "_BATCH_BYTES", 100)
        patch.setattr(broker_queues, "_FULL", 3)
        found = asyncio.run(collect(queue.pull, low, high))
    numbers = [int(each) for each in b"".join(part.body for part in found).split(b",")[:-1]]
    assert [each for each in numbers if each < high] == [each for each in range(low, high) if each not in missing]
    assert numbers == sorted(set(numbers))
    assert not found or found[-1].next_offset >= high
    assert queue.under_way == 0
    assert queue.most_under_way <= 17


async def collect(pull: Callable[[int, int], Awaitable[Pulled]], low: int, high: int) -> list[Pulled]:
    return [part async for part in pull_range(pull, low, high)]  # type: ignore[arg-type]


async def test_pulls_ask_for_as_many_as_answers_hold():
    queue = Queue([8], set())
    await collect(queue.pull, 0, 8000)
    assert [count for _, count in queue.asked].count(8) > 900
    generous = Queue([10_000], set())
    await collect(generous.pull, 0, 20_000)
    assert len(generous.asked) < 20_000 / 32 / 2


async def test_an_error_comes_when_its_turn_does_and_ends_all_pulls(monkeypatch: pytest.MonkeyPatch):
    queue, found = Queue([10], set()), list[Pulled]()
    monkeypatch.setattr(broker_queues, "_BATCH_BYTES", 1)

    async def pull(offset: int, count: int) -> Pulled:
        if offset >= 100:
            raise TopicRouteError("gone")
        return await queue.pull(offset, count)

    async def read() -> None:
        async for part in pull_range(pull, 0, 1000):
            found.append(part)

    with pytest.raises(TopicRouteError, match="gone"):
        await read()
    numbers = b"".join(part.body for part in found).split(b",")[:-1]
    assert numbers == [b"%d" % number for number in range(len(numbers))]
    assert len(numbers) >= 100
    assert queue.under_way == 0


async def test_a_reader_that_stops_leaves_no_pull():
    queue = Queue([10], set())
    pulls = pull_range(queue.pull, 0, 10**9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_queues, "_BATCH_BYTES", 1)
        await anext(pulls)
    await pulls.aclose()
    assert queue.under_way == 0

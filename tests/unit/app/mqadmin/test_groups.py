"""Rows of a group's progress, and of what it has popped."""

import random
from typing import Any

import msgspec
import pytest
import typer

from rocketbroker.app.mqadmin.command import Report, TrueFalse
from rocketbroker.app.mqadmin.groups import consumer_progress, pop_status, progress_of_group
from rocketbroker.client import AdminClient
from rocketbroker.client.core.errors import ClientError, ConsumerNotOnlineError
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.bodies.route import ClusterInfo
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingTimeoutError, RocketBrokerError
from tests.support.admin_stage import admin_stage
from tests.support.ports import LOOPBACK, free_ports
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of


class Admin(AdminClient):
    """Administrator whose answers come without a broker."""

    def __init__(self, stats: ConsumeStats) -> None:
        super().__init__("127.0.0.1:1")
        self._stats = stats

    async def examine_consume_stats(
        self,
        _group: str,
        _topic: str | None = None,
        _cluster: str | None = None,
        *,
        addresses: object = None,
        failures: dict[str, RocketBrokerError] | None = None,
    ) -> ConsumeStats:
        return self._stats


async def test_queues_are_in_order_whatever_the_order_of_the_answer():
    queues = [MessageQueue(topic, broker, at) for topic in "TU" for broker in ("a", "b") for at in range(3)]
    shuffled = random.Random(7).sample(queues, len(queues))
    assert shuffled != queues
    stats = ConsumeStats({queue: OffsetWrapper(10 + queue.queue_id, 7, 9) for queue in shuffled})
    report = await progress_of_group(Admin(stats), "CG", None, None, False)
    assert isinstance(report.data, dict)
    rows = report.data["queues"]
    assert [MessageQueue(row.topic, row.broker_name, row.queue_id) for row in rows] == queues
    assert [(row.diff, row.inflight) for row in rows[:3]] == [(3, 2), (4, 2), (5, 2)]


def popped(waiting: int, in_flight: int, next_return: int | None) -> OffsetWrapper:
    """A queue as our broker reports it."""
    return OffsetWrapper(20, 10, 10 + in_flight, 0, in_flight, next_return, waiting)


STATS = ConsumeStats(
    {
        MessageQueue("U", "a", 0): popped(0, 2, 7_000),
        MessageQueue("T", "a", 1): popped(4, 0, None),
        MessageQueue("T", "a", 0): popped(0, 3, 5_000),
        MessageQueue("%RETRY%CG_T", "a", 0): popped(1, 1, 9_000),
        MessageQueue("Pulled", "a", 0): OffsetWrapper(10, 7, 9),
    }
)


def cells(report: Report) -> list[tuple[object, ...]]:
    """Topic, queue, waiting, in flight and next return of each row."""
    rows = [msgspec.to_builtins(row) for row in report.data["queues"]]
    names = "topic", "queueId", "waiting", "inFlight", "nextReturn"
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize("options", [{"topic_name": "T"}, {"show_client_ip": TrueFalse.true}])
async def test_options_of_one_group_need_a_group(options: dict[str, Any]):
    with pytest.raises(typer.BadParameter, match="need -g"):
        await consumer_progress(Admin(ConsumeStats()), **options)


async def test_what_a_group_has_popped_by_queue():
    report = await pop_status(Admin(STATS), "CG")
    assert report.data["group"] == "CG"
    assert cells(report) == [
        ("%RETRY%CG_T", 0, 1, 1, 9_000),
        ("T", 0, 0, 3, 5_000),
        ("T", 1, 4, 0, 0),
        ("U", 0, 0, 2, 7_000),
    ]


async def test_what_a_group_has_popped_of_a_topic():
    report = await pop_status(Admin(STATS), "CG", "T")
    assert [row[:2] for row in cells(report)] == [("%RETRY%CG_T", 0), ("T", 0), ("T", 1)]


async def test_a_broker_that_reports_no_pops_has_no_rows():
    report = await pop_status(Admin(ConsumeStats({MessageQueue("T", "a", 0): OffsetWrapper(10, 7, 9)})), "CG")
    assert report.data["queues"] == []
    assert report.parts[-1] == "group CG has popped nothing at a broker that reports it"


async def test_a_broker_that_reports_no_waiting_messages_has_the_difference_of_its_offsets():
    older = OffsetWrapper(20, 13, 15, 0, pop_in_flight=2)
    report = await pop_status(Admin(ConsumeStats({MessageQueue("T", "a", 0): older})), "CG")
    assert cells(report) == [("T", 0, 7, 2, 0)]


async def test_a_frozen_broker_hides_only_the_groups_that_it_has():
    class HalfFrozen(AdminClient):
        async def fetch_all_topic_list(self) -> list[str]:
            return ["%RETRY%frozen", "%RETRY%well"]

        async def examine_consume_stats(
            self,
            group: str,
            _topic: str | None = None,
            _route: str | None = None,
            *,
            addresses: object = None,
            failures: dict[str, RocketBrokerError] | None = None,
        ) -> ConsumeStats:
            if group == "frozen":
                raise RemotingTimeoutError("no answer")
            return ConsumeStats({MessageQueue("T", "a", 0): OffsetWrapper(10, 7)}, 1.5)

        async def examine_consumers(self, group: str, address: str | None = None) -> tuple[ConsumerConnection, str]:
            raise ConsumerNotOnlineError(ResponseCode.CONSUMER_NOT_ONLINE, group)

    async with HalfFrozen("127.0.0.1:1") as admin:
        report = await consumer_progress(admin)
    assert [(row.group, row.diff_total) for row in report.data["groups"]] == [("well", 3)]
    assert report.failures == ["frozen: no answer"]


# -- groups of clusters, brokers that tell nothing, groups without consumers

STATS_OF_CG: Script = lambda fields, _body: response(  # noqa: E731
    body=ConsumeStats(
        {MessageQueue("T", "a", 0): OffsetWrapper(10, 7)} if fields["consumerGroup"] == "CG" else {}
    ).encode()
)
OFFLINE: Script = lambda _fields, _body: response(ResponseCode.CONSUMER_NOT_ONLINE, "not online")  # noqa: E731
GROUPS: Script = lambda _fields, _body: response(  # noqa: E731
    body=SubscriptionGroupWrapper({"Made": SubscriptionGroupConfig("Made")}).encode()
)
FULL: Script = lambda _fields, _body: response(ResponseCode.SYSTEM_ERROR, "too many queues")  # noqa: E731
PROGRESS: dict[int, Script] = {
    RequestCode.GET_CONSUME_STATS: STATS_OF_CG,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: OFFLINE,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GROUPS,
}


async def test_the_groups_of_a_cluster_and_what_they_lack_there():
    async with ScriptedServer(PROGRESS) as a, ScriptedServer(PROGRESS) as b:
        routes = {"%RETRY%CG": route_of({"a": a.address, "b": b.address}), "%RETRY%B": route_of({"b": b.address})}
        brokers = {data.broker_name: data for data in routes["%RETRY%CG"].broker_datas}
        info = ClusterInfo(brokers, {"One": ["a"], "Two": ["b"]})
        names = name_server(
            routes,
            {
                RequestCode.GET_BROKER_CLUSTER_INFO: lambda _fields, _body: response(body=info.encode()),
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda _fields, _body: response(
                    body=TopicList(list(routes)).encode()
                ),
            },
        )
        async with names, AdminClient(names.address) as admin:
            report = await consumer_progress(admin, cluster="One")
            assert [(row.group, row.diff_total) for row in report.data["groups"]] == [("CG", 3)]
            assert b.asked == []
            with pytest.raises(ClientError, match="cluster 'Three' does not exist; the name server knows: One, Two"):
                await consumer_progress(admin, cluster="Three")


async def test_a_broker_that_answers_with_an_error_is_not_silent():
    nobody = f"{LOOPBACK}:{free_ports()}"
    async with ScriptedServer(PROGRESS) as a, ScriptedServer({RequestCode.GET_CONSUME_STATS: FULL}) as b:
        route = route_of({"a": a.address, "b": b.address, "c": nobody})
        async with name_server({"%RETRY%CG": route}) as names, AdminClient(names.address) as admin:
            report = await progress_of_group(admin, "CG", None, None, False)
    (failed,), (silent,) = report.data["failedBrokers"], report.data["silentBrokers"]
    assert (failed.addr, silent.addr) == (b.address, nobody)
    assert "too many queues" in failed.error
    assert "connect" in silent.error
    assert [line.partition(": ")[0] for line in report.failures] == [b.address, nobody]


async def test_a_group_without_a_consumer_exists_and_has_no_offsets():
    async with admin_stage({"a": PROGRESS}) as stage:
        data = await stage.json("consumerProgress", "-g", "Made", "-s", "true")
        assert (data["queues"], data["diffTotal"], data["failedBrokers"]) == ([], 0, [])
        done = await stage.call("consumerProgress", "-g", "Made")
        text = f"consumer group 'Made' exists at {stage.address('a')}, but no consumer of it has come yet"
        assert (done.code, done.out.splitlines()[1].startswith(f"no offsets: {text}")) == (0, True)
        assert (await stage.call("consumerStatus", "-g", "Made")).err.startswith(f"mqadmin: {text}")
        nope = await stage.call("consumerProgress", "-g", "Nope")
    assert (nope.code, nope.err) == (1, "mqadmin: there is no consumer group 'Nope': no route of %RETRY%Nope\n")


async def test_offsets_without_a_retry_topic_are_shown():
    async with admin_stage({"a": PROGRESS}) as stage:
        data = await stage.json("consumerProgress", "-g", "CG", "-s", "true")
    assert data["diffTotal"] == 3


async def test_a_group_has_no_offsets_only_if_all_brokers_say_so():
    failing = {**PROGRESS, RequestCode.GET_CONSUME_STATS: FULL}
    async with admin_stage({"a": PROGRESS, "b": failing}) as stage:
        done = await stage.call("consumerProgress", "-g", "Made")
        data = await stage.failed_json("consumerProgress", "-g", "Made")
        address = stage.address("b")
    assert (done.code, "no offsets" in done.out, done.err.startswith(f"mqadmin: {address}: ")) == (1, False, True)
    assert (data["queues"], [each["addr"] for each in data["failedBrokers"]]) == ([], [address])


async def test_errors_of_all_brokers_do_not_say_that_a_group_has_no_consumer():
    async with admin_stage({"a": {**PROGRESS, RequestCode.GET_CONSUME_STATS: FULL}}) as stage:
        known = await stage.call("consumerProgress", "-g", "Made")
        unknown = await stage.call("consumerProgress", "-g", "Nope")
    for done in (known, unknown):
        assert (done.code, "too many queues" in done.err, "consumer group" in done.err) == (1, True, False)


async def test_a_broker_that_does_not_tell_its_groups_is_named():
    async with admin_stage({"a": {RequestCode.GET_CONSUME_STATS: STATS_OF_CG}}) as stage:
        done = await stage.call("consumerProgress", "-g", "Nope")
        said = f"there is no consumer group 'Nope': no route of %RETRY%Nope; broker {stage.address('a')} did not tell: "
    assert (done.code, done.err.startswith(f"mqadmin: {said}")) == (1, True)

import json
from pathlib import Path

import pytest
import typer

from rocketbroker.app.mqadmin.topics import topics_in_file
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import TopicOffset, TopicStatsTable
from rocketbroker.codec.remoting.bodies.topic_config import CreateTopicListRequestBody, TopicConfig
from rocketbroker.codec.remoting.headers.namesrv import GetKVConfigResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.admin_stage import admin_stage
from tests.support.scripted_server import Script, ScriptedServer, header_of

TWO = [{"topicName": "A", "readQueueNums": 2, "writeQueueNums": 3}, {"topicName": "B"}]


class Broker:
    """A broker with one topic."""

    def __init__(self) -> None:
        self.topic = TopicConfig("T", 3, 2, 6, order=True, attributes={"message.type": "FIFO"})
        self.scripts: dict[int, Script] = {
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.UPDATE_AND_CREATE_TOPIC: lambda _fields, _body: response(),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lambda _fields, _body: response(),
        }

    def get(self, fields: dict[str, str], _body: bytes) -> Command:
        if fields["topic"] != "T":
            return response(ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker.")
        return response(body=self.topic.encode())


class KvConfig:
    """A name server with order configurations."""

    def __init__(self, **held: str) -> None:
        self.held = held
        self.scripts: dict[int, Script] = {
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.DELETE_KV_CONFIG: self.delete,
        }

    def get(self, fields: dict[str, str], _body: bytes) -> Command:
        assert fields["namespace"] == "ORDER_TOPIC_CONFIG"
        if fields["key"] not in self.held:
            return response(ResponseCode.QUERY_NOT_FOUND, "No config item")
        return response(0, None, header_of(GetKVConfigResponseHeader(self.held[fields["key"]])))

    def put(self, fields: dict[str, str], _body: bytes) -> Command:
        self.held[fields["key"]] = fields["value"]
        return response()

    def delete(self, fields: dict[str, str], _body: bytes) -> Command:
        self.held.pop(fields["key"], None)
        return response()


def written(folder: Path, topics: object) -> Path:
    path = folder / "topics.json"
    path.write_text(topics if isinstance(topics, str) else json.dumps(topics))
    return path


# -- updateTopic, deleteTopic


async def test_a_topic_is_created_on_the_other_brokers_when_one_fails():
    names = KvConfig()
    async with admin_stage({"a": Broker().scripts, "b": {}, "c": Broker().scripts}, [names.scripts]) as stage:
        done = await stage.call("updateTopic", "-c", "DefaultCluster", "-t", "T", "-o", "true")
        created = [f"create topic to {stage.address(each)} success." for each in "ac"]
        failed = stage.address("b")

    assert (done.code, done.out.splitlines()[:2], names.held) == (1, created, {})
    first, second = done.err.splitlines()
    assert first.startswith(f"mqadmin: {failed}: ")
    assert second == "mqadmin: the order configuration of T was not set; repeat it once all brokers answer"


async def test_an_ordered_topic_on_an_unregistered_broker_is_not_created():
    async with admin_stage({"a": {}}) as stage, ScriptedServer(Broker().scripts) as other:
        done = await stage.call("updateTopic", "-b", other.address, "-t", "T", "-o", "true")
        assert other.of(RequestCode.UPDATE_AND_CREATE_TOPIC) == []
    assert (done.code, done.err) == (1, f"mqadmin: no registered broker has the address {other.address}\n")


async def test_a_number_beyond_the_protocol_is_wrong_usage():
    async with admin_stage({"a": Broker().scripts}) as stage:
        done = await stage.call("updateTopic", "-b", stage.address("a"), "-t", "T", "-r", "9" * 20)
    assert (done.code, "2147483647" in done.err) == (2, True)


async def test_a_shown_order_configuration_stays_on_its_line():
    names = KvConfig(T="a\nsuccess:4")
    async with admin_stage({"a": {}}, [names.scripts]) as stage:
        done = await stage.call("updateOrderConf", "-t", "T", "-m", "get")
    assert done.out == "get orderConf success. topic=[T], orderConf=[a\\nsuccess:4]\n"


async def test_name_servers_keep_a_topic_that_a_broker_still_has():
    deleted: Script = lambda _fields, _body: response()  # noqa: E731
    deletes: dict[int, Script] = {RequestCode.DELETE_TOPIC_IN_BROKER: deleted}
    names: dict[int, Script] = {RequestCode.DELETE_TOPIC_IN_NAMESRV: deleted}
    async with admin_stage({"a": deletes, "b": {}, "c": deletes}, [names]) as stage:
        done = await stage.call("deleteTopic", "-c", "DefaultCluster", "-t", "T", "--yes")
        lines = [f"delete topic [T] from broker [{stage.address(each)}] success." for each in "ac"]
        failed = stage.address("b")
        assert stage.names[0].of(RequestCode.DELETE_TOPIC_IN_NAMESRV) == []

    assert (done.code, done.out.splitlines()) == (1, lines)
    first, second = done.err.splitlines()
    assert first.startswith(f"mqadmin: {failed}: ")
    assert second == (
        "mqadmin: the name servers keep topic T, which not all brokers have deleted; repeat it once all answer"
    )


# -- topicStatus


async def test_the_status_of_a_topic_has_the_rows_of_brokers_that_answer():
    table = TopicStatsTable({MessageQueue("T", "a", 1): TopicOffset(0, 3, 2000)}, 1.5)
    tells: dict[int, Script] = {RequestCode.GET_TOPIC_STATS_INFO: lambda _fields, _body: response(body=table.encode())}
    async with admin_stage({"a": tells, "b": {}}) as stage:
        done = await stage.call("topicStatus", "-t", "T")
        data = await stage.failed_json("topicStatus", "-t", "T")
        failed = stage.address("b")

    assert (done.code, done.err.startswith(f"mqadmin: {failed}: ")) == (1, True)
    assert [row[:3] for row in done.rows[1:3]] == [["a", "1", "0"], [failed, "-", "-"]]
    assert [row["brokerName"] for row in data["queues"]] == ["a"]
    assert (data["silentBrokers"], [each["addr"] for each in data["failedBrokers"]]) == ([], [failed])


# -- updateTopicList


def test_a_file_has_topics_with_rocketmqs_defaults_and_attributes_that_are_set(tmp_path: Path):
    path = written(tmp_path, [{"topicName": "A"}, {"topicName": "B", "perm": 4, "attributes": {"a": "1", "-b": ""}}])

    a, b = topics_in_file(path)

    assert (a.topic_name, a.read_queue_nums, a.write_queue_nums, a.perm, a.attributes) == ("A", 16, 16, 6, {})
    assert (b.perm, b.attributes) == (4, {"+a": "1", "-b": ""})


@pytest.mark.parametrize(
    ("topics", "wrong"),
    [
        ("[", "is not a list of topics"),
        ({"topicName": "A"}, "Expected `array`"),
        ([{"topicName": "A", "readQueueNum": 4}], "unknown field `readQueueNum`"),
        ([{"topicName": "A", "perm": "6"}], r"Expected `int`, got `str` - at `\$\[0\].perm`"),
        ([{"topicName": "a b"}], "a b.*illegal characters"),
        ([{"topicName": "A", "writeQueueNums": 0}], "topic 'A' needs readQueueNums and writeQueueNums from 1"),
        ([{"topicName": "A", "readQueueNums": 2**31}], "Expected `int` <= 2147483647"),
        ([{"topicName": "A", "perm": 9}], r"topic 'A' has perm 9; use 2 \(write\), 4 \(read\) or 6 \(both\)"),
        ([{"topicName": "A"}, {"topicName": "B"}, {"topicName": "A"}], "has a topic more than once: A"),
        ([{}], "is not a list of topics"),
        ([], "has no topics"),
    ],
)
def test_what_is_no_list_of_topics_is_wrong_usage(tmp_path: Path, topics: object, wrong: str):
    with pytest.raises(typer.BadParameter, match=wrong):
        topics_in_file(written(tmp_path, topics))


def test_a_file_that_is_missing_is_wrong_usage(tmp_path: Path):
    with pytest.raises(typer.BadParameter, match=r"cannot read .*none\.json: No such file"):
        topics_in_file(tmp_path / "none.json")


async def test_topics_of_a_file_are_sent_to_each_master_in_one_request(tmp_path: Path):
    path = written(tmp_path, TWO)
    async with admin_stage({"a": Broker().scripts, "b": {}}) as stage:
        done = await stage.call("updateTopicList", "-c", "DefaultCluster", "-f", str(path))
        (asked,) = stage.brokers["a"].of(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)

    assert done.out == (
        f"submit batch of topic config to {stage.address('a')} success, please check the result later.\n"
    )
    assert (done.code, done.err.startswith(f"mqadmin: {stage.address('b')}: ")) == (1, True)
    sent = CreateTopicListRequestBody.decode(asked.body).topic_config_list
    assert [(topic.topic_name, topic.read_queue_nums) for topic in sent] == [("A", 2), ("B", 16)]


async def test_a_broker_of_4_9_takes_the_topics_one_by_one(tmp_path: Path):
    old = Broker().scripts
    del old[RequestCode.UPDATE_AND_CREATE_TOPIC_LIST]
    async with admin_stage({"a": old}) as stage:
        done = await stage.json("updateTopicList", "-b", stage.address("a"), "-f", str(written(tmp_path, TWO)))
        asked = stage.brokers["a"].of(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert done["brokers"] == [stage.address("a")]
    assert [(each.fields["topic"], each.fields["readQueueNums"]) for each in asked] == [("A", "2"), ("B", "16")]


# -- updateTopicPerm


async def test_a_permission_is_changed_and_all_else_stays():
    broker = Broker()
    async with admin_stage({"a": broker.scripts}) as stage:
        done = await stage.call("updateTopicPerm", "-b", stage.address("a"), "-t", "T", "-p", "4")
        (asked,) = stage.brokers["a"].of(RequestCode.UPDATE_AND_CREATE_TOPIC)

    assert done.out.splitlines()[0] == f"update topic perm from 6 to 4 in {stage.address('a')} success."
    fields = asked.fields
    assert (fields["perm"], fields["readQueueNums"], fields["writeQueueNums"]) == ("4", "3", "2")
    assert (fields["order"], fields.get("attributes", "")) == ("true", "")


async def test_the_same_permission_is_not_sent():
    async with admin_stage({"a": Broker().scripts}) as stage:
        done = await stage.call("updateTopicPerm", "-b", stage.address("a"), "-t", "T", "-p", "6")
        assert stage.brokers["a"].of(RequestCode.UPDATE_AND_CREATE_TOPIC) == []
    assert done == (0, "new perm equals to the old one!\n", "")


async def test_a_broker_of_4_9_tells_a_topic_by_its_route():
    old = Broker().scripts
    del old[RequestCode.GET_TOPIC_CONFIG]
    async with admin_stage({"a": old}) as stage:
        done = await stage.json("updateTopicPerm", "-c", "DefaultCluster", "-t", "T", "-p", "2")
        (asked,) = stage.brokers["a"].of(RequestCode.UPDATE_AND_CREATE_TOPIC)
        missing = await stage.call("updateTopicPerm", "-c", "DefaultCluster", "-t", "No", "-p", "2")

    assert done["brokers"] == [{"addr": stage.address("a"), "before": 6, "after": 2}]
    assert (asked.fields["readQueueNums"], asked.fields["perm"]) == ("4", "2")
    assert missing.code == 1


async def test_a_broker_without_the_topic_is_named_and_the_others_are_changed():
    other = Broker()
    other.scripts[RequestCode.GET_TOPIC_CONFIG] = lambda _fields, _body: response(ResponseCode.TOPIC_NOT_EXIST, "none")
    async with admin_stage({"a": other.scripts, "b": Broker().scripts}) as stage:
        done = await stage.call("updateTopicPerm", "-c", "DefaultCluster", "-t", "T", "-p", "4")

    assert (done.code, done.out) == (1, f"update topic perm from 6 to 4 in {stage.address('b')} success.\n")
    assert done.err.startswith(f"mqadmin: {stage.address('a')}: the broker has no topic 'T'; mqadmin topicRoute -t T")


# -- order configurations


async def test_an_order_configuration_is_set_shown_and_deleted():
    names = KvConfig()
    async with admin_stage({"a": {}}, [names.scripts]) as stage:
        put = await stage.call("updateOrderConf", "-t", "T", "-m", "put", "-v", "a:4;b:2")
        assert put.out == "update orderConf success. topic=[T], orderConf=[a:4;b:2]\n"
        shown = await stage.json("updateOrderConf", "-t", "T", "-m", "get")
        deleted = await stage.call("updateOrderConf", "-t", "T", "-m", "delete")
        assert deleted.out == "delete orderConf success. topic=[T]\n"
        gone = await stage.call("updateOrderConf", "-t", "T", "-m", "get")

        none = await stage.json("updateOrderConf", "-t", "T", "-m", "delete")

    assert shown == {"topic": "T", "method": "get", "orderConf": "a:4;b:2"}
    assert none["orderConf"] is None
    assert gone.code == 1
    assert "topic 'T' has no order configuration; set one with -m put" in gone.err


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["-m", "put"], "give -v BROKER:COUNT[;...] with -m put, and only with it"),
        (["-m", "get", "-v", "a:1"], "give -v BROKER:COUNT[;...] with -m put, and only with it"),
        (["-m", "put", "-v", "a"], "'a' is not BROKER:COUNT"),
        (["-m", "put", "-v", "a:1;b:0"], "'b:0' is not BROKER:COUNT"),
        (["-m", "put", "-v", "a\nsuccess.:4"], "is not BROKER:COUNT"),
        (["-m", "put", "-v", "a:1;"], "'' is not BROKER:COUNT"),
    ],
)
async def test_a_wrong_order_configuration_is_wrong_usage(words: list[str], wrong: str):
    async with admin_stage({"a": {}}) as stage:
        done = await stage.call("updateOrderConf", "-t", "T", *words)
    assert done.code == 2
    assert wrong in " ".join(done.err.split())


async def test_an_ordered_topic_on_one_broker_keeps_the_entries_of_the_others():
    names = KvConfig(T="b:8;a:1")
    async with admin_stage({"a": Broker().scripts}, [names.scripts]) as stage:
        done = await stage.json("updateTopic", "-b", stage.address("a"), "-t", "T", "-w", "4", "-o", "true")
        assert done["orderConf"] == "b:8;a:4"
        assert names.held == {"T": "b:8;a:4"}
        await stage.call("updateTopic", "-c", "DefaultCluster", "-t", "T", "-w", "2", "-o", "true")
        assert names.held == {"T": "a:2"}


# -- where a topic is


async def test_the_clusters_of_a_topic_are_listed():
    async with admin_stage({"a": {}, "b": {}}) as stage:
        assert await stage.json("topicClusterList", "-t", "T") == {"topic": "T", "clusters": ["DefaultCluster"]}
        assert (await stage.call("topicClusterList", "-t", "No")).code == 1


async def test_queues_are_shared_as_consumers_share_them():
    async with admin_stage({"a": {}, "b": {}}) as stage:
        done = await stage.call("allocateMQ", "-t", "T", "-i", "192.0.2.2, 192.0.2.1,192.0.2.3")
        shared = (await stage.json("allocateMQ", "-t", "T", "-i", "192.0.2.1,192.0.2.2,192.0.2.3"))["result"]

    assert len(done.out.splitlines()) == 1
    assert json.loads(done.out)["result"] == shared
    names = {ip: [f"{each['brokerName']}{each['queueId']}" for each in queues] for ip, queues in shared.items()}
    assert names == {"192.0.2.1": ["a0", "a1", "a2"], "192.0.2.2": ["a3", "b0", "b1"], "192.0.2.3": ["b2", "b3"]}


@pytest.mark.parametrize("addresses", ["", " , ", "192.0.2.1,192.0.2.1"])
async def test_addresses_of_consumers_are_different_ones(addresses: str):
    async with admin_stage({"a": {}}) as stage:
        assert (await stage.call("allocateMQ", "-t", "T", "-i", addresses)).code == 2

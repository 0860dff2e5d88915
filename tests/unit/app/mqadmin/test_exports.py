import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.app.mqadmin.exports import write_export
from rocketbroker.client.core.errors import ClientError
from rocketbroker.codec.remoting.bodies.client import Connection, ConsumerConnection
from rocketbroker.codec.remoting.bodies.offset import BrokerStatsData, BrokerStatsItem
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable, TopicList
from rocketbroker.codec.remoting.bodies.topic_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.admin_stage import admin_stage
from tests.support.scripted_server import Script

SETTINGS = {
    "brokerName": "a",
    "brokerId": "0",
    "traceOn": "true",
    "listenPort": "1",
    "clientCallbackExecutorThreads": "2",
}
RUNTIME = {
    "putTps": "12.5 3.0 1.0",
    "getTransferredTps": "0.25 0 0",
    "brokerVersionDesc": "V5_5_0",
    "commitLogDiskRatio": "0.26",
    "putMessageAverageSize": "100.5",
    "msgPutTotalYesterdayMorning": "10",
    "msgPutTotalTodayMorning": "35",
}
V5_5_0 = 513


def clients(fields: dict[str, str], _body: bytes) -> Command:
    if fields["consumerGroup"] != "CG":
        return response(ResponseCode.CONSUMER_NOT_ONLINE, "not online")
    return response(body=ConsumerConnection([Connection("c", "192.0.2.1:1", "JAVA", V5_5_0)]).encode())


def broker(runtime: dict[str, str] = RUNTIME, settings: dict[str, str] = SETTINGS) -> dict[int, Script]:
    topics = {name: TopicConfig(name, 2, 3) for name in ("T", "TBW102", "a", "%RETRY%CG", "%DLQ%CG", "rmq_sys_x")}
    topics["Bad"] = TopicConfig("Bad", perm=9)
    groups = {name: SubscriptionGroupConfig(name) for name in ("CG", "CG_Off", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS")}

    def counter(fields: dict[str, str], _body: bytes) -> Command:
        if fields["statsKey"] != "SCHEDULE_TOPIC_XXXX":
            return response(ResponseCode.SYSTEM_ERROR, "The stats not exist")
        return response(body=BrokerStatsData(BrokerStatsItem(60, 1.0), BrokerStatsItem(600)).encode())

    bodies = {
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper(topics).encode(),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: TopicList(["a"]).encode(),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper(groups).encode(),
        RequestCode.GET_BROKER_RUNTIME_INFO: KVTable(runtime).encode(),
        RequestCode.GET_BROKER_CONFIG: "".join(f"{name}={value}\n" for name, value in settings.items()).encode(),
    }

    def answer(body: bytes) -> Script:
        return lambda _fields, _body: response(body=body)

    scripts: dict[int, Script] = {code: answer(body) for code, body in bodies.items()}
    return {
        **scripts,
        RequestCode.VIEW_BROKER_STATS_DATA: counter,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: clients,
    }


TOPICS = ("T", "%RETRY%CG", "%RETRY%CG_Off")


async def export(folder: Path, *words: str, brokers: dict[str, dict[int, Script]] | None = None) -> tuple[str, Any]:
    """Run an export; return the name of its file and the content, which is that of --json."""
    async with admin_stage(brokers or {"a": broker()}, topics=TOPICS) as stage:
        named = [stage.address("a") if word == "{a}" else word for word in words]
        data = await stage.json(*named, "-f", str(folder))
        done = await stage.call(*named, "-f", str(folder))
    path = Path(data["file"])
    assert done == (0, f"export {path} success\n", "")
    content = json.loads(await asyncio.to_thread(path.read_text))
    assert content.keys() == data["content"].keys()
    return path.name, content


@pytest.mark.parametrize(
    ("words", "file", "topics", "groups"),
    [
        (["-c", "DefaultCluster"], "metadata.json", ["T"], ["CG", "CG_Off"]),
        (["-b", "{a}"], "metadata.json", ["T"], ["CG", "CG_Off"]),
        (["-b", "{a}", "-t"], "topic.json", ["T"], None),
        (["-b", "{a}", "-t", "-s"], "topic.json", ["%DLQ%CG", "%RETRY%CG", "T"], None),
        (["-c", "DefaultCluster", "-g"], "subscriptionGroup.json", None, ["CG", "CG_Off"]),
    ],
)
async def test_topics_and_groups_of_users_are_exported(
    tmp_path: Path, words: list[str], file: str, topics: list[str] | None, groups: list[str] | None
):
    name, content = await export(tmp_path / "new" / "folder", "exportMetadata", *words)

    assert name == file
    assert content.pop("exportTime") > 1_700_000_000_000
    found = (content.get("topicConfigTable"), content.get("subscriptionGroupTable"))
    assert tuple(sorted(table) if table is not None else None for table in found) == (topics, groups)


async def test_queues_of_a_cluster_are_added_up(tmp_path: Path):
    _, content = await export(
        tmp_path, "exportMetadata", "-c", "DefaultCluster", brokers={"a": broker(), "b": broker(), "c": broker()}
    )
    topic = content["topicConfigTable"]["T"]
    assert (topic["readQueueNums"], topic["writeQueueNums"]) == (6, 9)
    assert content["subscriptionGroupTable"]["CG"]["retryQueueNums"] == 3


async def test_contradicting_options_are_wrong_usage(tmp_path: Path):
    async with admin_stage({"a": broker()}) as stage:
        both = await stage.call("exportMetadata", "-c", "DefaultCluster", "-t", "-g")
        neither = await stage.call("exportMetadata", "-f", str(tmp_path))
    assert (both.code, neither.code) == (2, 2)
    assert "give -t (topics only), -g (consumer groups only), or neither" in " ".join(both.err.split())


async def test_the_main_settings_are_exported(tmp_path: Path):
    name, content = await export(tmp_path, "exportConfigs", "-c", "DefaultCluster")

    assert name == "configs.json"
    assert content == {
        "clusterScale": {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0},
        "brokerConfigs": {"a": {"brokerName": "a", "brokerId": "0", "traceOn": "true"}},
    }


async def test_rates_sizes_and_versions_are_exported(tmp_path: Path):
    name, content = await export(tmp_path, "exportMetrics", "-c", "DefaultCluster")

    assert name == "metrics.json"
    assert content["evaluateReport"]["a"] == {
        "runtimeEnv": {"cpuNum": "2"},
        "runtimeVersion": {"rocketmqVersion": "V5_5_0", "clientInfo": ["JAVA%V5_5_0"]},
        "runtimeQuota": {
            "diskRatio": {"commitLogDiskRatio": "0.26"},
            "tps": {"normalInTps": 12.5, "normalOutTps": 0.25, "transInTps": 0.0, "scheduleInTps": 1.0},
            "oneDayNum": {
                "normalOneDayInNum": 25,
                "normalOneDayOutNum": 0,
                "transOneDayInNum": 0,
                "scheduleOneDayInNum": 600,
            },
            "messageAverageSize": "100.5",
            "topicSize": 1,
            "groupSize": 2,
        },
    }
    assert content["totalData"]["totalTps"]["totalNormalInTps"] == 12.5
    assert content["totalData"]["totalOneDayNum"]["scheduleOneDayInNum"] == 600


async def test_a_broker_of_4_9_that_tells_little_is_exported(tmp_path: Path):
    old = broker({"brokerVersionDesc": "V4_9_8"}, {"brokerId": "0"})
    _, metrics = await export(tmp_path, "exportMetrics", "-c", "DefaultCluster", brokers={"a": old})
    _, configs = await export(tmp_path, "exportConfigs", "-c", "DefaultCluster", brokers={"a": old})

    quota = metrics["evaluateReport"]["a"]["runtimeQuota"]
    assert (quota["diskRatio"], quota["tps"]["normalInTps"], quota["oneDayNum"]["normalOneDayInNum"]) == ({}, 0.0, 0)
    assert configs["brokerConfigs"] == {"a": {"brokerId": "0"}}, "the name is that at the name server"


async def test_figures_that_are_no_numbers_are_zero(tmp_path: Path):
    odd = RUNTIME | {"putTps": "n/a", "getTransferredTps": "nan 0 0", "msgPutTotalTodayMorning": "15.5"}
    _, metrics = await export(tmp_path, "exportMetrics", "-c", "DefaultCluster", brokers={"a": broker(odd)})
    quota = metrics["evaluateReport"]["a"]["runtimeQuota"]
    assert (quota["tps"]["normalInTps"], quota["tps"]["normalOutTps"]) == (0.0, 0.0)
    assert quota["oneDayNum"]["normalOneDayInNum"] == 6


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_ends_midway_leaves_nothing_behind(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
):
    def replace(_path: Path, _target: Path) -> Path:
        raise error

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises((ClientError, KeyboardInterrupt)):
        write_export(tmp_path, "metadata.json", {})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path):
    path = write_export(tmp_path, "metadata.json", {"a": 1})
    (tmp_path / f".metadata.json.{os.getpid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClientError, match=r"cannot write .*metadata\.json: File exists; choose another folder with -f"):
        write_export(tmp_path, "metadata.json", {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert not (tmp_path / "elsewhere").exists()

    with pytest.raises(ClientError, match="cannot write"):
        write_export(path, "metadata.json", {})

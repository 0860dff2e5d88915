"""Changes to topics and groups over real sockets: answered when the disk and the name server have them, or undone."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings, namesrv_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.broker.persist import config_manager
from rocketbroker.codec.remoting.bodies.topic_config import (
    CreateTopicListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
)
from rocketbroker.codec.remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from rocketbroker.codec.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.file_system import FileSystem
from rocketbroker.processor import heart_beat
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.running import running, stopping

LIMIT_S = 60


class Disk:
    """Writes tables when it is let, or refuses them."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.go_on.set()
        self.refuses = False
        self.asked = 0

    def replace_contents(self, path: Path, data: bytes, file_system: FileSystem) -> None:
        self.asked += 1
        self.go_on.wait(LIMIT_S)
        if self.refuses:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_contents(path, data, file_system)


class Servers(NamedTuple):
    """A name server and a broker in this process, and a client of both."""

    namesrv: str
    broker: BrokerController
    client: RemotingClient
    disk: Disk

    async def ask(self, command: Command) -> Command:
        return await self.client.invoke(self.broker.address, command, LIMIT_S)

    async def has_route(self, topic: str) -> bool:
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
        return (await self.client.invoke(self.namesrv, command, LIMIT_S)).code == ResponseCode.SUCCESS


@pytest.fixture
async def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Servers]:
    disk = Disk()
    monkeypatch.setattr(config_manager, "replace_contents", disk.replace_contents)
    monkeypatch.setattr(config_manager, "RETRY_S", 0.01)
    async with (
        running(NamesrvController(namesrv_settings(0, tmp_path))) as namesrv,
        running(BrokerController.bind(broker_settings(0, tmp_path, namesrv.address))) as broker,
        stopping(RemotingClient()) as client,
    ):
        yield Servers(namesrv.address, broker, client, disk)
        disk.go_on.set()


def create_topic(topic: str, queues: int = 2) -> Command:
    header = CreateTopicRequestHeader(topic, "TBW102", queues, queues, 6, "SINGLE_TAG")
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def create_topics(*topics: str) -> Command:
    body = CreateTopicListRequestBody([TopicConfig(topic) for topic in topics]).encode()
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


def create_group(group: str) -> Command:
    body = SubscriptionGroupConfig(group).encode()
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def create_groups(*groups: str) -> Command:
    body = SubscriptionGroupList([SubscriptionGroupConfig(group) for group in groups]).encode()
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)


def send(topic: str) -> Command:
    header = SendMessageRequestHeader("PG", topic, "TBW102", 1, 0, 0, 1_000, 0, "")
    return request(RequestCode.SEND_MESSAGE, header, b"body")


def send_dead_letter(group: str) -> Command:
    """A consumer's message that was tried too often: it goes to a topic of dead letters, which may be new."""
    header = SendMessageRequestHeader("PG", f"%RETRY%{group}", "TBW102", 1, 0, 0, 1_000, 0, "", reconsume_times=17)
    return request(RequestCode.SEND_MESSAGE, header, b"body")


def send_back(group: str) -> Command:
    """The first message of the log goes to the retry topic of the group."""
    return request(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(0, group, 0))


def delete_topic(topic: str) -> Command:
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))


def delete_group(group: str) -> Command:
    header = DeleteSubscriptionGroupRequestHeader(group, clean_offset=True)
    return request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


def forbid(group: str, topic: str) -> Command:
    header = UpdateGroupForbiddenRequestHeader(group, topic, readable=False)
    return request(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)


CHANGES = {
    "topic": create_topic("New"),
    "changed topic": create_topic("Old", 9),
    "topics": create_topics("New", "Newer"),
    "group": create_group("NewGroup"),
    "groups": create_groups("NewGroup", "NewerGroup"),
    "first send": send("Sent"),
    "first dead letter": send_dead_letter("OldGroup"),
    "first message sent back": send_back("OtherGroup"),
    "deleted topic": delete_topic("Old"),
    "deleted group": delete_group("OldGroup"),
    "forbidden": forbid("OldGroup", "Old"),
}


async def make_old(servers: Servers) -> None:
    made = (create_topic("Old"), send("Old"), create_groups("OldGroup", "OtherGroup"), send("%RETRY%OldGroup"))
    for command in made:
        assert (await servers.ask(command)).code == ResponseCode.SUCCESS


def tables(broker: BrokerController) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
    groups = broker.subscription_groups
    return dict(broker.topic_configs.topics), dict(groups.groups), dict(groups.forbidden_table)


@pytest.mark.proves("Tables", "acknowledged changes")
@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES.keys())
async def test_no_change_is_answered_before_it_is_on_disk(servers: Servers, command: Command):
    await make_old(servers)
    servers.disk.go_on.clear()
    asked = servers.disk.asked
    # A second one like it waits too: a send to a topic that the first one makes, and a change that changes nothing.
    answers = [asyncio.create_task(servers.ask(command)) for _ in range(2)]
    async with asyncio.timeout(LIMIT_S):
        while servers.disk.asked == asked:  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0.005)
    # Whatever is answered without waiting comes before the answer to this.
    await servers.ask(request(RequestCode.GET_BROKER_CONFIG))
    assert not any(answer.done() for answer in answers)
    servers.disk.go_on.set()
    for answer in await asyncio.gather(*answers):
        assert answer.code == ResponseCode.SUCCESS


@pytest.mark.proves("Tables", "refused changes")
@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES.keys())
async def test_a_failed_write_is_reported_and_undone(servers: Servers, command: Command):
    await make_old(servers)
    before = tables(servers.broker)
    versions = servers.broker.topic_configs.data_version, servers.broker.subscription_groups.data_version
    counted = sum(version.counter for version in versions)
    servers.disk.refuses = True
    answer = await servers.ask(command)
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE)
    assert ".json cannot be written: No space left on device" in (answer.remark or "")
    assert tables(servers.broker) == before
    assert sum(version.counter for version in versions) >= counted + 2, "raised by the change and by its undoing"
    servers.disk.refuses = False
    assert (await servers.ask(command)).code == ResponseCode.SUCCESS


async def test_a_send_to_an_existing_topic_waits_for_no_table(servers: Servers):
    await make_old(servers)
    assert (await servers.ask(send("Old"))).code == ResponseCode.SUCCESS
    servers.disk.go_on.clear()
    other = asyncio.create_task(servers.ask(create_topic("New")))
    assert (await servers.ask(send("Old"))).code == ResponseCode.SUCCESS
    assert not other.done()
    servers.disk.go_on.set()
    await other


async def test_a_send_to_a_topic_whose_change_failed_is_acknowledged(servers: Servers):
    """The disk has the topic as it was, with the queue."""
    await make_old(servers)
    servers.disk.go_on.clear()
    change = asyncio.create_task(servers.ask(create_topic("Old", 9)))
    async with asyncio.timeout(LIMIT_S):
        while servers.broker.topic_configs.settled("Old") is None:  # noqa: ASYNC110 - it comes over a socket
            await asyncio.sleep(0.005)
    sent = asyncio.create_task(servers.ask(send("Old")))
    servers.disk.refuses = True
    servers.disk.go_on.set()
    assert (await change).code == ResponseCode.SYSTEM_ERROR
    assert (await sent).code == ResponseCode.SUCCESS
    servers.disk.refuses = False


async def test_created_topics_have_a_route_at_once(servers: Servers):
    async def create_and_look_up(number: int) -> bool:
        made = send(f"T{number}") if number % 5 == 0 else create_topic(f"T{number}")
        assert (await servers.ask(made)).code == ResponseCode.SUCCESS
        return await servers.has_route(f"T{number}")

    assert all(await asyncio.gather(*map(create_and_look_up, range(50))))
    assert servers.disk.asked < 30, "several changes are one write"


async def test_a_heartbeat_is_answered_when_the_retry_topic_has_a_route(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(heart_beat, "TOPIC_WAIT_S", LIMIT_S)
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"CG","messageModel":1,'
        b'"subscriptionDataSet":[{"subString":"*","subVersion":1,"topic":"T"}]}],"producerDataSet":[]}'
    )
    assert (await servers.ask(request(RequestCode.HEART_BEAT, body=body))).code == ResponseCode.SUCCESS
    assert await servers.has_route("%RETRY%CG")


async def test_a_failing_disk_fails_no_heartbeat(servers: Servers):
    servers.disk.refuses = True
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"CG","messageModel":1,'
        b'"subscriptionDataSet":[{"subString":"*","subVersion":1,"topic":"T"}]}],"producerDataSet":[]}'
    )
    assert (await servers.ask(request(RequestCode.HEART_BEAT, body=body))).code == ResponseCode.SUCCESS
    servers.disk.refuses = False

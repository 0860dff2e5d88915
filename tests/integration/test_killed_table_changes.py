"""A broker that is killed on receipt of an answer keeps what the answer said: topics and groups, made and deleted."""

from collections.abc import Callable

import pytest

from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.our_servers import OurServer, OurServers, wait_serving
from tests.support.raw_client import RawAnswer, RawClient
from tests.support.raw_requests import pull_fields, send_fields

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.proves("Tables", "acknowledged changes"),
]

SUCCESS = 0
SETTINGS: dict[str, str | int] = {"autoCreateSubscriptionGroup": "false", "flushDiskType": "SYNC_FLUSH"}
Check = Callable[[RawClient], None]


def create_topic(client: RawClient, topic: str) -> RawAnswer:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    return client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def create_group(client: RawClient, group: str) -> RawAnswer:
    body = SubscriptionGroupConfig(group).encode()
    return client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def has_topic(client: RawClient, topic: str) -> bool:
    return client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"}).code == SUCCESS


def has_group(client: RawClient, group: str) -> bool:
    return client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group}).code == SUCCESS


def topic_is_created(client: RawClient, n: int) -> Check:
    assert create_topic(client, f"Made{n}").code == SUCCESS
    return lambda again: check(has_topic(again, f"Made{n}"))


def topic_is_sent_to(client: RawClient, n: int) -> Check:
    assert client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(f"Sent{n}"), b"body").code == SUCCESS

    def message_is_there(again: RawClient) -> None:
        fields = pull_fields(f"Sent{n}", consumerGroup="TOOLS_CONSUMER")
        answer = again.ask(RequestCode.PULL_MESSAGE, fields)
        assert (answer.code, b"body" in answer.body) == (SUCCESS, True), answer.remark

    return message_is_there


def group_is_created(client: RawClient, n: int) -> Check:
    assert create_group(client, f"Group{n}").code == SUCCESS
    return lambda again: check(has_group(again, f"Group{n}"))


def topic_is_deleted(client: RawClient, n: int) -> Check:
    assert create_topic(client, f"Gone{n}").code == SUCCESS
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"Gone{n}"}).code == SUCCESS
    return lambda again: check(not has_topic(again, f"Gone{n}"))


def group_is_deleted(client: RawClient, n: int) -> Check:
    assert create_group(client, f"Left{n}").code == SUCCESS
    fields = {"groupName": f"Left{n}", "cleanOffset": "true"}
    assert client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields).code == SUCCESS
    return lambda again: check(not has_group(again, f"Left{n}"))


def check(holds: bool) -> None:
    assert holds


def kill_after_each(servers: OurServers, rounds: int) -> None:
    """Kill the broker as soon as it has answered, and look at what the next one has."""
    namesrv = servers.namesrv()
    broker: OurServer = servers.broker(namesrv.address, None, **SETTINGS)
    changes = [topic_is_created, topic_is_sent_to, group_is_created, topic_is_deleted, group_is_deleted]
    checks: list[Check] = []
    for n in range(rounds):
        for change in changes:
            with RawClient(broker.address) as client:
                checks.append(change(client, n))
                broker.kill()
            broker = servers.launch_broker(namesrv.address, broker.store, SETTINGS, port=broker.port)
            wait_serving(broker, namesrv.address)
            with RawClient(broker.address) as client:
                for holds in checks:
                    holds(client)


@pytest.mark.long
def test_answered_changes_survive_a_kill(servers: OurServers):
    kill_after_each(servers, rounds=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_answered_changes_survive_many_kills(servers: OurServers):
    kill_after_each(servers, rounds=20)

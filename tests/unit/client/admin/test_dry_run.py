"""A dry run reads, and lists what it would have changed."""

import pytest

from rocketbroker.client.admin.dry_run import DryRunClient, is_reading
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.scripted_server import name_server, route_of


async def test_changes_are_planned_and_reads_are_sent():
    async with name_server({"T": route_of({"broker-a": "127.0.0.1:1"})}) as names:
        async with DryRunClient(names.address) as admin:
            assert list(await admin.fetch_master_addresses("DefaultCluster")) == ["broker-a"]
            await admin.create_and_update_topic_config("127.0.0.1:1", TopicConfig("New"))
            await admin.delete_topic_in_name_server("T", "DefaultCluster")
            await admin.update_name_server_config({"a": "b"})

        first, second, third = admin.planned
        assert (first.request, first.address, first.fields["topic"]) == (
            "UPDATE_AND_CREATE_TOPIC",
            "127.0.0.1:1",
            "New",
        )
        assert str(second) == (
            f"would send DELETE_TOPIC_IN_NAMESRV (216) to {names.address}: topic=T clusterName=DefaultCluster"
        )
        assert third.body.strip() == "a=b"
        assert [each for each in names.asked if each.code == RequestCode.DELETE_TOPIC_IN_NAMESRV] == []


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.SEND_MESSAGE_V2,
        9999,
    ],
)
def test_a_request_that_changes_something_or_is_unknown_is_not_sent(code: int):
    assert not is_reading(code)

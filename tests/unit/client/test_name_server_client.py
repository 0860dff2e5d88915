"""Asking name servers, of which some may be down."""

import pytest

from rocketbroker.client.errors import NameServerError, TopicRouteError
from rocketbroker.client.name_server_client import NameServerClient, split_addresses
from rocketbroker.client.requests import client_request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import BrokerResponseError, ConfigError
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.scripted_server import ScriptedServer, name_server, route_of


@pytest.mark.parametrize("text", ["h:1", " h:1 ", "h:1;"])
def test_addresses_are_split(text: str):
    assert split_addresses(text) == ("h:1",)
    assert split_addresses("h:1; g:2") == ("h:1", "g:2")


@pytest.mark.parametrize(
    ("text", "reason"), [("", "no name server address"), ("h", "'h' is not an address"), ("h:x", "h:x")]
)
def test_a_wrong_address_is_named(text: str, reason: str):
    with pytest.raises(ConfigError, match=reason):
        split_addresses(text)


async def test_the_next_name_server_is_asked_and_stays_chosen():
    remoting = RemotingClient()
    async with name_server({"T": route_of({"a": "h:1"})}) as dead, name_server({"T": route_of({"b": "h:2"})}) as alive:
        await dead.stop()
        client = NameServerClient(remoting, f"{dead.address};{alive.address}")
        for _ in range(2):
            assert (await client.topic_route("T")).broker_datas[0].broker_name == "b"
        await remoting.stop()
    assert [asked.fields for asked in alive.asked] == [{"topic": "T", "acceptStandardJsonOnly": "true"}] * 2


async def test_each_reason_is_reported_when_none_answers():
    remoting = RemotingClient()
    async with name_server({}) as one, name_server({}) as two:
        await one.stop()
        await two.stop()
        with pytest.raises(NameServerError) as caught:
            await NameServerClient(remoting, f"{one.address};{two.address}").topic_route("T")
    assert one.address in str(caught.value)
    assert two.address in str(caught.value)
    await remoting.stop()


async def test_an_unknown_topic_and_another_refusal_are_distinguished():
    remoting = RemotingClient()
    async with name_server({}) as names:
        client = NameServerClient(remoting, names.address)
        with pytest.raises(TopicRouteError, match="for the topic: T"):
            await client.topic_route("T")
        with pytest.raises(BrokerResponseError, match="CODE: 3"):
            await client.invoke_all(lambda: client_request(RequestCode.PUT_KV_CONFIG))
        await remoting.stop()


async def test_a_broker_given_as_a_name_server_is_named_as_such():
    remoting = RemotingClient()
    async with ScriptedServer({}) as broker, name_server({"T": route_of({"b": "h:2"})}) as names:
        with pytest.raises(NameServerError, match=f"{broker.address} is a broker; give the address of a name server"):
            await NameServerClient(remoting, broker.address).topic_route("T")
        await NameServerClient(remoting, f"{broker.address};{names.address}").topic_route("T")
        await remoting.stop()

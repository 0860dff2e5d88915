"""Asking name servers, of which some may be down."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from rocketbroker.client.core import name_server_client
from rocketbroker.client.core.errors import NameServerError, TopicRouteError
from rocketbroker.client.core.name_server_client import NameServerClient, split_addresses
from rocketbroker.client.core.requests import client_request
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, ConfigError, RemotingError
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


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


async def test_a_name_server_that_is_lost_knows_nothing_about_brokers():
    remoting = RemotingClient()
    async with name_server({}) as names:
        client = NameServerClient(remoting, names.address)
        assert await client.has_brokers() is False
        await names.stop()
        assert await client.has_brokers() is None
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


async def test_a_change_that_only_some_name_servers_take_names_them():
    takes: dict[int, Script] = {RequestCode.PUT_KV_CONFIG: lambda _fields, _body: response()}
    remoting = RemotingClient()
    async with name_server({}, takes) as one, name_server({}) as two, name_server({}, takes) as three:
        client = NameServerClient(remoting, ";".join(each.address for each in (one, two, three)))
        with pytest.raises(BrokerResponseError) as caught:
            await client.invoke_all(lambda: client_request(RequestCode.PUT_KV_CONFIG))
        await remoting.stop()

    assert caught.value.__notes__[-1] == f"{one.address} had agreed already; repeat it once all name servers answer"
    assert three.of(RequestCode.PUT_KV_CONFIG) == []


async def test_a_broker_given_as_a_name_server_is_named_as_such():
    remoting = RemotingClient()
    async with ScriptedServer({}) as broker, name_server({"T": route_of({"b": "h:2"})}) as names:
        with pytest.raises(NameServerError, match=f"{broker.address} is a broker; give the address of a name server"):
            await NameServerClient(remoting, broker.address).topic_route("T")
        await NameServerClient(remoting, f"{broker.address};{names.address}").topic_route("T")
        await remoting.stop()


class QuickToGiveUp(RemotingClient):
    """Waits for one address for a short time only."""

    silent = ""

    def invoke(self, address: str, command: Command, timeout_s: float = 3.0) -> Coroutine[Any, Any, Command]:
        return super().invoke(address, command, 0.05 if address == self.silent else timeout_s)


async def test_a_silent_name_server_is_passed_over_and_named():
    remoting = QuickToGiveUp()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remoting.silent = address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NameServerError, match=rf"no answer from {address} to request code 105 within 0\.0\d s"):
            await NameServerClient(remoting, address, 60).topic_route("T")
        async with name_server({"T": route_of({"b": "h:2"})}) as names:
            route = await NameServerClient(remoting, f"{address};{names.address}", 60).topic_route("T")
        assert route.broker_datas[0].broker_name == "b"
    await remoting.stop()


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b'{"queueDatas":7}'])
async def test_an_answer_that_is_no_route_is_named(body: bytes):
    remoting = RemotingClient()
    async with ScriptedServer({ROUTE: lambda _fields, _body: response(body=body)}) as liar:
        with pytest.raises(NameServerError, match="the name server's route of topic T cannot be read"):
            await NameServerClient(remoting, liar.address).topic_route("T")
        await remoting.stop()


async def test_a_server_of_another_protocol_is_named():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    remoting = RemotingClient()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        address = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
        with pytest.raises(NameServerError, match=f"no name server answers: .*{address}"):
            await NameServerClient(remoting, address).topic_route("T")
        await remoting.stop()


async def test_a_request_that_no_version_of_a_name_server_has_to_serve_is_answered_by_its_code():
    remoting = RemotingClient()
    async with name_server({}) as names:
        client = NameServerClient(remoting, names.address)
        answer = await client.invoke(client_request(RequestCode.GET_KV_CONFIG))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await remoting.stop()


async def test_requests_at_once_wait_for_one_answer_of_the_address_server(monkeypatch: pytest.MonkeyPatch):
    urls: list[str] = []

    async def fetch(url: str, _tls: object) -> list[str]:
        urls.append(url)
        await asyncio.sleep(0.01)
        if len(urls) == 1:
            raise RemotingError("address server: no answer")
        return ["h:1"]

    monkeypatch.setattr(name_server_client, "fetch_name_servers", fetch)
    client = NameServerClient(RemotingClient(), "http://h/nsaddr")
    found = await asyncio.gather(*(client.addresses() for _ in range(3)), return_exceptions=True)
    assert isinstance(found[0], NameServerError)
    assert found[1:] == [("h:1",), ("h:1",)]
    assert urls == ["http://h/nsaddr"] * 2


async def test_known_name_servers_are_used_while_the_address_server_is_asked(monkeypatch: pytest.MonkeyPatch):
    answer = asyncio.Event()
    answers = [["h:1"], ["h:2"]]

    async def fetch(_url: str, _tls: object) -> list[str]:
        if len(answers) == 1:
            await answer.wait()
        return answers.pop(0)

    monkeypatch.setattr(name_server_client, "fetch_name_servers", fetch)
    client = NameServerClient(RemotingClient(), "http://h/nsaddr")
    assert await client.addresses() == ("h:1",)
    monkeypatch.setattr(name_server_client, "_FETCH_INTERVAL_S", 0.0)
    first = asyncio.gather(client.addresses(), client.addresses())
    await asyncio.sleep(0)
    assert await client.addresses() == ("h:1",)
    answer.set()
    assert sorted(await first) == [("h:1",), ("h:2",)]

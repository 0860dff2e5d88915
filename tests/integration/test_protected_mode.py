"""Peers with an address of another machine, at servers with their settings as they come: clients, and no more."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from docs._ext import request_codes
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.java_process import cluster_info, wait_registered
from tests.support.other_machine import OtherMachine
from tests.support.our_servers import OurServer, OurServers
from tests.support.raw_client import RawClient
from tests.support.raw_requests import send_fields

ROUTES = {title: routes for title, _, routes in request_codes.sections()}
VIP_PORT_DISTANCE = 2


class Servers(NamedTuple):
    broker: OurServer
    namesrv: OurServer

    def titled(self, title: str) -> OurServer:
        """The server with the routes of that section."""
        return self.broker if title == "Broker" else self.namesrv


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, other_machine: OtherMachine) -> Iterator[Servers]:
    """Listening on all addresses, with the broker registered by its address and not by loopback."""
    started = OurServers(tmp_path_factory.mktemp("ours"), other_machine.servers_host)
    try:
        namesrv = started.namesrv()
        yield Servers(started.broker(namesrv.address), namesrv)
    finally:
        started.close()


@pytest.fixture
def stranger(other_machine: OtherMachine) -> Iterator["Strangers"]:
    with Strangers(other_machine) as found:
        yield found


class Strangers:
    """Connections from the other machine."""

    def __init__(self, machine: OtherMachine) -> None:
        self._machine = machine
        self._open: list[RawClient] = []

    def __enter__(self) -> "Strangers":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._open:
            client.close()

    def at(self, server: OurServer, port: int = 0) -> RawClient:
        client = RawClient(self._machine.connect(server.host, port or server.port))
        self._open.append(client)
        return client


@pytest.mark.parametrize("title", ROUTES)
def test_a_stranger_may_send_only_the_codes_of_clients(servers: Servers, stranger: Strangers, title: str):
    peer = stranger.at(servers.titled(title))
    for opaque, (code, route) in enumerate(ROUTES[title].items(), 1):
        answer = peer.ask(code, opaque=opaque)
        refused = answer.code == ResponseCode.NO_PERMISSION and answer.remark.startswith("protectedMode: ")
        assert refused == (route.audience is not Audience.CLIENT), (code, answer)
        if refused:
            assert f"request code {code} ({RequestCode(code).name})" in answer.remark


def test_the_vip_port_is_protected_as_well(servers: Servers, stranger: Strangers):
    answer = stranger.at(servers.broker, servers.broker.port - VIP_PORT_DISTANCE).ask(RequestCode.GET_BROKER_CONFIG)

    assert answer.code == ResponseCode.NO_PERMISSION


def test_a_stranger_sends_and_asks_for_routes(servers: Servers, stranger: Strangers):
    assert stranger.at(servers.broker).ask(310, send_fields("FromElsewhere"), b"body").code == ResponseCode.SUCCESS
    route = stranger.at(servers.namesrv).ask(105, {"topic": "TBW102"})

    assert route.code == ResponseCode.SUCCESS
    assert servers.broker.address.encode() in route.body


@pytest.mark.parametrize("host", ["127.0.0.1", "own"])
def test_this_machine_administers_by_loopback_and_by_its_own_address(servers: Servers, host: str):
    server = servers.broker
    with RawClient(f"{server.host if host == 'own' else host}:{server.port}") as local:
        assert local.ask(RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("title", "update", "white_list", "opened"),
    [
        ("Broker", RequestCode.UPDATE_BROKER_CONFIG, "adminWhiteList", RequestCode.GET_BROKER_CONFIG),
        ("Broker", RequestCode.UPDATE_BROKER_CONFIG, "brokerWhiteList", RequestCode.GET_ALL_CONSUMER_OFFSET),
        ("Name server", RequestCode.UPDATE_NAMESRV_CONFIG, "adminWhiteList", RequestCode.GET_NAMESRV_CONFIG),
        ("Name server", RequestCode.UPDATE_NAMESRV_CONFIG, "brokerWhiteList", RequestCode.GET_BROKER_MEMBER_GROUP),
    ],
)
def test_a_white_list_opens_and_closes_connections_that_are_open(
    servers: Servers,
    stranger: Strangers,
    other_machine: OtherMachine,
    title: str,
    update: int,
    white_list: str,
    opened: int,
):
    server = servers.titled(title)
    peer = stranger.at(server)
    fields = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    assert peer.ask(opened, fields, opaque=1).code == ResponseCode.NO_PERMISSION
    with RawClient(f"127.0.0.1:{server.port}") as local:
        body = f"{white_list}=192.0.2.7;{other_machine.address}/32".encode()
        assert local.ask(update, body=body, opaque=1).code == ResponseCode.SUCCESS
        assert peer.ask(opened, fields, opaque=2).code == ResponseCode.SUCCESS
        may_change = ResponseCode.SUCCESS if white_list == "adminWhiteList" else ResponseCode.NO_PERMISSION
        assert peer.ask(update, body=b"protectedMode=true", opaque=3).code == may_change

        assert local.ask(update, body=f"{white_list}=".encode(), opaque=2).code == ResponseCode.SUCCESS
    assert peer.ask(opened, fields, opaque=4).code == ResponseCode.NO_PERMISSION


def test_without_protection_a_stranger_may_do_everything(
    tmp_path: Path, stranger: Strangers, other_machine: OtherMachine
):
    servers = OurServers(tmp_path, other_machine.servers_host)
    try:
        namesrv = servers.namesrv(protectedMode="false")
        assert stranger.at(namesrv).ask(RequestCode.GET_NAMESRV_CONFIG).code == ResponseCode.SUCCESS
    finally:
        servers.close()


def test_a_broker_on_another_machine_registers_once_the_white_list_has_it(tmp_path: Path, other_machine: OtherMachine):
    servers = OurServers(tmp_path, other_machine.servers_host)
    try:
        namesrv = servers.namesrv()
        settings: dict[str, str | int] = {
            "brokerName": "broker-far",
            "brokerIP1": other_machine.address,
            "registerNameServerPeriod": 1_000,
        }
        broker = servers.launch_broker(namesrv.address, None, settings, runner=other_machine.runner)
        told = broker.wait_for("protectedMode: ")
        assert "request code 103 (REGISTER_BROKER) is for broker" in told
        assert "add its address to brokerWhiteList" in told
        assert f'"{other_machine.address}:{broker.port}"' not in cluster_info(namesrv.address)

        with RawClient(namesrv.address) as local:
            body = f"brokerWhiteList={other_machine.address}".encode()
            assert local.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body).code == ResponseCode.SUCCESS
        wait_registered(f"{other_machine.address}:{broker.port}", namesrv.address)
    finally:
        servers.close()

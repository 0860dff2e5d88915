"""Verdicts of a probe about servers that answer badly, or not at all."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import typer

from rocketbroker.app import probe
from rocketbroker.app.probe import Verdict, own_address, probe_broker, probe_grpc, probe_namesrv, report, tls_of
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.handler import Audience, Route
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import TransportConfig
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.transport.remoting_server import RemotingServer
from rocketbroker.transport.tls_transport import RemotingTls
from tests.support.ports import LOOPBACK, free_ports
from tests.support.running import running
from tests.support.tls_files import TlsFiles


@pytest.mark.parametrize(
    ("bound", "address"),
    [("", "127.0.0.1:1"), ("0.0.0.0", "127.0.0.1:1"), ("192.0.2.1", "192.0.2.1:1"), ("broker", "broker:1")],
)
def test_a_server_is_asked_where_it_listens(bound: str, address: str):
    assert own_address(bound, 1) == address


def test_a_port_that_the_system_chose_is_unknown():
    with pytest.raises(ConfigError, match="--check needs the port of the server"):
        own_address("", 0)


def table(**values: str) -> Command:
    return response(body=KVTable(values).encode())


@pytest.mark.parametrize(
    ("answer", "ok", "reason"),
    [
        (table, True, "is ready"),
        (lambda: table(notReady="disk: full"), False, "is not ready: disk: full"),
        (lambda: response(ResponseCode.GO_AWAY), False, "is stopping"),
        (lambda: response(ResponseCode.NO_PERMISSION, "no"), True, "answers"),
        (lambda: response(ResponseCode.SYSTEM_ERROR, "broken"), False, "answers with code 1: broken"),
    ],
)
async def test_the_answer_of_a_broker_decides(answer: Callable[[], Command], ok: bool, reason: str):
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    route = Route(code, lambda _connection, _command: answer(), audience=Audience.CLIENT)
    async with running(RemotingServer({int(code): route}, host=LOOPBACK)) as server:
        address = f"{LOOPBACK}:{server.port}"

        assert await probe_broker(address) == Verdict(ok, f"{address} {reason}")


async def test_a_broker_is_no_name_server():
    async with running(RemotingServer({}, host=LOOPBACK)) as server:
        verdict = await probe_namesrv(f"{LOOPBACK}:{server.port}")

    assert not verdict.ok
    assert "answers with code 3" in verdict.reason


@pytest.fixture
async def files(tmp_path: Path) -> TlsFiles:
    # Clients know the server by a name that is not that of the loopback address.
    return await asyncio.to_thread(TlsFiles, tmp_path, ("broker.example",))


def settings(*groups: dict[str, str]) -> TransportConfig:
    return TransportConfig.model_validate({name: value for group in groups for name, value in group.items()})


@pytest.mark.parametrize(("mode", "is_encrypted"), [("enforcing", True), ("permissive", False), ("disabled", False)])
async def test_a_port_is_asked_in_what_it_serves(files: TlsFiles, mode: str, is_encrypted: bool):
    transport = settings(files.of_server(mode=mode))
    route = Route(RequestCode.GET_BROKER_CLUSTER_INFO, lambda _connection, _command: table(), audience=Audience.CLIENT)
    routes = {int(route.code): route}
    async with running(RemotingServer(routes, host=LOOPBACK, tls=RemotingTls(transport).server)) as server:
        address, context = f"{LOOPBACK}:{server.port}", tls_of(transport)

        assert await probe_namesrv(address, context) == Verdict(True, f"{address} answers")
        assert (context is not None) == is_encrypted


async def test_a_server_that_knows_its_clients_is_asked_with_the_certificate_of_its_own_connections(files: TlsFiles):
    demands = files.of_server(mode="enforcing", need_client_auth="require", trustCertPath=str(files.ca))
    with pytest.raises(ConfigError, match=r"set tls\.client\.certPath and tls\.client\.keyPath"):
        tls_of(settings(demands))

    transport = settings(demands, files.of_client())
    async with running(RemotingServer({}, host=LOOPBACK, tls=RemotingTls(transport).server)) as server:
        verdict = await probe_namesrv(f"{LOOPBACK}:{server.port}", tls_of(transport))

    assert "answers with code 3" in verdict.reason


async def test_a_port_that_serves_both_is_asked_as_the_server_asks_others(files: TlsFiles):
    assert tls_of(settings(files.of_server(), files.of_client())) is not None
    assert tls_of(settings(files.of_client())) is None, "without a certificate the port has no TLS"


@pytest.fixture
async def port() -> AsyncIterator[Callable[[bytes], asyncio.Server]]:
    """Start servers that answer everything with the same bytes."""
    made: list[asyncio.Server] = []

    async def start(answer: bytes) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, LOOPBACK, 0)
        made.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield start  # type: ignore[misc]
    for server in made:
        server.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "answers"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak HTTP/2; is it a gRPC port?"),
        (b"", "closes the connection; is it a gRPC port?"),
    ],
)
async def test_a_grpc_port_answers_with_its_settings(port, answer: bytes, reason: str):
    address = f"{LOOPBACK}:{await port(answer)}"

    assert await probe_grpc(address, ProxyConfig()) == Verdict(reason == "answers", f"{address} {reason}")


def test_one_line_and_the_exit_code_tell_the_verdict(capsys: pytest.CaptureFixture[str]):
    async def ready() -> Verdict:
        return Verdict(True, "it is ready")

    with pytest.raises(typer.Exit) as end:
        report("mqbroker", ready(), "x:1")

    assert (end.value.exit_code, capsys.readouterr().out) == (0, "mqbroker: it is ready\n")


def test_a_server_that_is_not_there_is_no_traceback(capsys: pytest.CaptureFixture[str]):
    address = f"{LOOPBACK}:{free_ports()}"

    with pytest.raises(typer.Exit) as end:
        report("mqbroker", probe_broker(address), address)

    assert end.value.exit_code == 1
    assert capsys.readouterr().out.startswith(f"mqbroker: {address} does not answer: ")


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    async def hang() -> Verdict:
        await asyncio.Event().wait()
        return Verdict(True, "")

    monkeypatch.setattr(probe, "LIMIT_S", 0.01)
    with pytest.raises(typer.Exit) as end:
        report("mqbroker", hang(), "x:1")

    assert end.value.exit_code == 1
    assert "x:1 has not answered within 0.01 s" in capsys.readouterr().out

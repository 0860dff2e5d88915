"""Probe of a server by its own port, for containers: ``mqbroker --check``, ``mqnamesrv --check``, ``mqproxy --check``.

It reads the settings that the server was started with, asks the server on this machine, prints one line, and ends with
0 or 1. It needs neither a name server nor the extra ``metrics``.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable
from typing import Final, NamedTuple

import typer

from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import TransportConfig
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.tls_settings import has_certificate
from rocketbroker.common.errors import ConfigError, RemotingError
from rocketbroker.transport.remoting_client import RemotingClient

# Seconds for the whole probe: container runtimes give it five or more.
LIMIT_S: Final = 4.0
# HTTP/2: what a client sends first, with an empty SETTINGS frame, and the header of the server's SETTINGS frame.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_HEADER: Final = 9
_SETTINGS: Final = 4


class Verdict(NamedTuple):
    """Outcome of a probe, with its reason."""

    ok: bool
    reason: str


def report(command: str, probe: Awaitable[Verdict], address: str) -> None:
    """Run a probe, print its outcome in one line, and end the command with 0 or 1."""
    verdict = asyncio.run(_within_limit(probe, address))
    print(f"{command}: {verdict.reason}")
    raise typer.Exit(0 if verdict.ok else 1)


async def _within_limit(probe: Awaitable[Verdict], address: str) -> Verdict:
    try:
        async with asyncio.timeout(LIMIT_S):
            return await probe
    except TimeoutError:
        return Verdict(False, f"{address} has not answered within {LIMIT_S:g} s; its log may say why")
    except (RemotingError, OSError) as error:
        return Verdict(False, f"{address} does not answer: {error}")


def own_address(bind_address: str, port: int) -> str:
    """Return the address by which this machine reaches a server of its own.

    Raises:
        ConfigError: The port is 0, so that only the server knows it.
    """
    if not port:
        raise ConfigError("--check needs the port of the server; set listenPort (grpcServerPort of a proxy) to one")
    try:
        is_any = ipaddress.ip_address(bind_address or "0.0.0.0").is_unspecified  # noqa: S104
    except ValueError:
        is_any = False
    return join_address("127.0.0.1" if is_any else bind_address, port)


def tls_of(transport: TransportConfig) -> ssl.SSLContext | None:
    """Return the settings of TLS for a server's own port, ``None`` for plain text (blocks: reads files).

    A port that serves plain text too is asked in plain text, unless this server's own connections use TLS.

    Raises:
        ConfigError: A file of tls.client.* cannot be used, or is missing although the server demands a certificate.
    """
    is_served = transport.tls_server_mode != "disabled" and has_certificate(transport)
    if not is_served or not (transport.tls_server_mode == "enforcing" or transport.tls_enable):
        return None
    if transport.tls_server_need_client_auth == "require" and not transport.tls_client_cert_path:
        raise ConfigError(
            "--check needs a certificate, because of tls.server.need.client.auth=require; set tls.client.certPath and "
            "tls.client.keyPath"
        )
    from rocketbroker.transport.tls_contexts import client_context

    # The peer is a process of this machine, and its certificate has the name that clients use, not that of the
    # loopback address. It is not compared with tls.server.certPath either: for some seconds after that file was
    # replaced the server presents the old one, and would be restarted for it.
    return client_context(transport.model_copy(update={"tls_client_auth_server": False}))


async def _ask(address: str, code: RequestCode, tls: ssl.SSLContext | None) -> Command:
    client = RemotingClient(tls=None if tls is None else lambda: tls)
    try:
        return await client.invoke(address, request(code), LIMIT_S)
    finally:
        await client.stop()


async def probe_broker(address: str, tls: ssl.SSLContext | None = None) -> Verdict:
    """Ask a broker if its store is open, its disk has room, name servers know it, and replicas follow."""
    answer = await _ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, tls)
    if answer.code == ResponseCode.SUCCESS:
        reasons = KVTable.decode(bytes(answer.body)).table.get("notReady", "")
        return Verdict(not reasons, f"{address} is not ready: {reasons}" if reasons else f"{address} is ready")
    return _answered(address, answer)


async def probe_namesrv(address: str, tls: ssl.SSLContext | None = None) -> Verdict:
    """Ask a name server for its brokers."""
    return _answered(address, await _ask(address, RequestCode.GET_BROKER_CLUSTER_INFO, tls))


def _answered(address: str, answer: Command) -> Verdict:
    if answer.code == ResponseCode.GO_AWAY:
        return Verdict(False, f"{address} is stopping")
    if answer.code in {ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION}:
        return Verdict(True, f"{address} answers")
    return Verdict(False, f"{address} answers with code {answer.code}: {answer.remark}")


async def probe_grpc(address: str, config: ProxyConfig) -> Verdict:
    """Begin an HTTP/2 connection to a gRPC port; it serves if it answers with its settings."""
    host, _, port = address.rpartition(":")
    context = None if config.grpc_plain_text_enable else _any_certificate()
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    try:
        writer.write(_PREFACE)
        header = await reader.readexactly(_FRAME_HEADER)
    except asyncio.IncompleteReadError:
        return Verdict(False, f"{address} closes the connection; is it a gRPC port?")
    finally:
        writer.close()
    if header[3] != _SETTINGS:
        return Verdict(False, f"{address} does not speak HTTP/2; is it a gRPC port?")
    return Verdict(True, f"{address} answers")


def _any_certificate() -> ssl.SSLContext:
    """Return a context that trusts every certificate: the peer is a process of this machine."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def transport_address(transport: TransportConfig) -> str:
    """Return the address of a broker or name server on this machine."""
    return own_address(transport.bind_address, transport.listen_port)

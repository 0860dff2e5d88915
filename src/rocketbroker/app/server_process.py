"""Life of a server process: event loop, signals, limits on its peers, and the notice of who may reach it."""

import asyncio
import gc
import ipaddress
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from rocketbroker.common.config import TransportConfig
from rocketbroker.common.config.load import BrokerSettings, NamesrvSettings
from rocketbroker.common.config.proxy_settings import ProxySettings
from rocketbroker.common.config.tls_settings import has_certificate
from rocketbroker.common.lifecycle import Part
from rocketbroker.common.open_files import connection_limit
from rocketbroker.common.service_manager import ServiceManager
from rocketbroker.transport.peer_limits import WRITE_HIGH_WATER, ConnectionLimits
from rocketbroker.transport.remoting_server import ALL_ADDRESSES

log = logging.getLogger(__name__)

# Time for which a thread waits for the interpreter before it asks the event loop to yield. With Python's 5 ms the flush
# thread waits longer to begin a sync, and to report it, than the disk takes; with far less the threads hinder
# each other.
SWITCH_INTERVAL_S = 0.0002


def run(main: Coroutine[None, None, None]) -> None:
    """Run a coroutine on a new event loop, of uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    else:
        factory = uvloop.new_event_loop
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


async def serve(part: Part, booted: Callable[[], Awaitable[None] | None], *, cancels_start: bool = False) -> None:
    """Start a part, call ``booted``, wait for SIGTERM or SIGINT, stop the part.

    A signal during the start takes effect after it, or cancels it if ``cancels_start``. Errors of the start are raised.
    systemd learns that the process serves, and that it stops.
    """
    stopped, manager = asyncio.Event(), ServiceManager()
    loop = asyncio.get_running_loop()
    starting = loop.create_task(part.start())

    def stop() -> None:
        if cancels_start and not stopped.is_set():
            starting.cancel()
        stopped.set()

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        await asyncio.wait((starting,))
        if starting.cancelled():
            return
        starting.result()
        try:
            said = booted()
            if said is not None:
                await said
            manager.ready("serving")
            await stopped.wait()
        finally:
            manager.stopping("stopping")
            await part.stop()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def spare_the_collector() -> None:
    """Exempt all objects from garbage collection, and collect rarely: for a process that is one server."""
    # Nothing on the hot path creates cycles, so collections only cost time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


def limits_of(transport: TransportConfig) -> ConnectionLimits:
    """Return the limits of a broker's or name server's connections."""
    descriptors = connection_limit()
    return ConnectionLimits(
        frame_max_length=transport.frame_max_length,
        max_connections=min(transport.max_connections, descriptors),
        max_connections_per_address=transport.max_connections_per_address,
        write_high_water=transport.write_buffer_high_water_mark or WRITE_HIGH_WATER,
        max_idle_s=transport.server_channel_max_idle_time_seconds,
        write_low_water=transport.write_buffer_low_water_mark,
        receive_buffer=transport.server_socket_rcv_buf_size,
        send_buffer=transport.server_socket_snd_buf_size,
        max_header_length=transport.max_header_length,
        max_request_body_size=transport.max_request_body_size,
        max_held_bytes=transport.max_held_bytes,
        frame_timeout_s=transport.frame_timeout_seconds,
        max_push_bytes=transport.max_push_bytes_per_connection,
        slow_request_s=transport.slow_request_ms / 1000,
        max_descriptor=descriptors,
    )


def log_remarks(settings: BrokerSettings | NamesrvSettings | ProxySettings) -> None:
    """Log the warnings and notes about settings, before the server starts."""
    for line in settings.warnings:
        log.warning("settings: %s", line)
    for line in settings.notes:
        log.info("settings: %s", line)


def log_access(transport: TransportConfig, host: str = "") -> None:
    """Log the access mode and the peers that it admits, and TLS; warn if it admits everyone.

    Args:
        transport: settings of the ports.
        host: address in routes, that clients connect to; empty if routes have none.
    """
    _log_tls(transport)
    if host:
        _log_names(transport, host)
    if transport.protected_mode:
        lists = ", ".join(
            f"{name}={networks}" if networks else f"{name} is empty"
            for name, networks in (
                ("adminWhiteList", transport.admin_white_list),
                ("brokerWhiteList", transport.broker_white_list),
            )
        )
        log.info("protected mode is on: peers on other machines are clients only; %s", lists)
    elif _is_loopback(transport.bind_address):
        log.info("protected mode is off; only this machine can reach %s", transport.bind_address)
    else:
        log.warning(
            "protected mode is off: anyone who can reach %s may administer this server; set protectedMode=true, or "
            "bindAddress or a firewall to limit who can",
            transport.bind_address or ALL_ADDRESSES,
        )


def _log_tls(transport: TransportConfig) -> None:
    """Log what is encrypted, and where the settings come from."""
    if transport.tls_server_mode != "disabled" and has_certificate(transport):
        served = "TLS alone" if transport.tls_server_mode == "enforcing" else "TLS and plain text"
        certificate = transport.tls_server_cert_path or "a certificate that no client can verify (tls.test.mode.enable)"
        file = transport.tls_config_file if Path(transport.tls_config_file).is_file() else ""
        log.info(
            "TLS: the ports serve %s, with %s%s",
            served,
            certificate,
            f"; settings also come from {file}" if file else "",
        )
    if transport.tls_server_mode == "enforcing" and not transport.tls_enable:
        log.warning(
            "TLS: tls.server.mode=enforcing without tls.enable=true: this server opens its own connections in plain "
            "text, which servers that enforce TLS reject"
        )
    if transport.tls_enable and not transport.tls_client_auth_server:
        log.warning(
            "TLS: tls.client.authServer=false: certificates of name servers, masters and brokers are not verified, so "
            "that anyone on the path can pose as one"
        )


def _log_names(transport: TransportConfig, host: str) -> None:
    """Warn of a certificate that is for other hosts than the one that clients connect to."""
    path = transport.tls_server_cert_path
    if transport.tls_server_mode == "disabled" or not path:
        return
    try:
        from rocketbroker.common.certificates import fits, names_in
    except ModuleNotFoundError:  # the extra security is not installed, so nothing reads certificates
        return
    names = names_in(Path(path))
    # Whoever makes the context says what is wrong with a file that has none.
    if names is not None and not fits(names, host):
        log.warning(
            "TLS: the certificate %s is for %s, and routes lead clients to %s (brokerIP1): those that verify "
            "it fail; issue one whose subjectAltName has %s, or set brokerIP1 to one of its names",
            path,
            ", ".join(names) or "no host at all",
            host,
            host,
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

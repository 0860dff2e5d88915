"""Ten thousand telemetry streams of a broker's gRPC port: what they take, and that all of it is given back."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.proxy import messaging_pb2 as pb
from tests.support.grpc_calls import send_once
from tests.support.grpc_script import publishing
from tests.support.http2_frames import (
    ACK,
    DATA,
    END_STREAM,
    HEADERS,
    NO_WINDOW,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    begun_call,
    frame,
    frames,
)
from tests.support.our_servers import OurServer, OurServers, launch_serving, make_topic, socket_count
from tests.support.ports import LOOPBACK, free_ports

pytestmark = [pytest.mark.soak, pytest.mark.long, pytest.mark.timeout(600)]

CONNECTIONS, STREAMS = 4, 10_000
MOST_OF_A_STREAM = 36 << 10  # docs/reference/grpc.md says about 30 KiB
LIMIT_S = 120


class Client:
    """A connection with many streams; its reader counts the settings that come and the streams that end."""

    def __init__(self, port: int, first: int, number: int, *, reads: bool) -> None:
        self.sock = socket.create_connection((LOOPBACK, port), timeout=LIMIT_S)
        self._ids = [2 * n + 1 for n in range(number)]
        self.answered = self.ended = 0
        if reads:
            self.sock.sendall(PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, (1 << 30).to_bytes(4)))
            threading.Thread(target=self._read, daemon=True).start()
        else:
            self.sock.sendall(NO_WINDOW)
        settings = pb.TelemetryCommand(settings=publishing("Orders")).SerializeToString()
        for number_, stream_id in enumerate(self._ids, first):
            client_id = f"client-{number_}"
            self.sock.sendall(begun_call(stream_id, len(settings), settings, "Telemetry", x_mq_client_id=client_id))

    def _read(self) -> None:
        with suppress(OSError):
            for kind, flags, payload in frames(self.sock, LIMIT_S):
                if kind == SETTINGS and not flags & ACK:
                    self.sock.sendall(frame(SETTINGS, flags=ACK))
                self.answered += kind == DATA and bool(payload)
                self.ended += kind == HEADERS and bool(flags & END_STREAM)

    def end(self) -> None:
        """End all streams in order."""
        for stream_id in self._ids:
            self.sock.sendall(frame(DATA, b"", stream_id, END_STREAM))


class Target(NamedTuple):
    """A broker with its gRPC port."""

    broker: OurServer
    namesrv: str
    port: int

    def producers(self) -> int:
        """Return how many producers the broker knows."""

        async def ask() -> int:
            async with AdminClient(self.namesrv) as admin:
                return sum(len(each) for each in (await admin.get_all_producer_info(self.broker.address)).data.values())

        return asyncio.run(ask())

    def connect(self, *, reads: bool) -> list[Client]:
        share = STREAMS // CONNECTIONS
        return [Client(self.port, n * share, share, reads=reads) for n in range(CONNECTIONS)]

    def check_free(self, sockets: int) -> None:
        """Wait until nothing of the streams is left, and serve another client."""
        self.broker.wait_until(lambda: socket_count(self.broker) <= sockets, LIMIT_S, "close all sockets")
        self.broker.wait_until(lambda: not self.producers(), LIMIT_S, "forget all clients")
        assert send_once(f"{LOOPBACK}:{self.port}", "Orders", b"1") == pb.OK


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    servers = OurServers(tmp_path_factory.mktemp("ours"))
    try:
        proxy = servers.home / "rmq-proxy.json"
        proxy.write_text(json.dumps({"grpcClientIdleTimeMills": 5000}))
        namesrv, port = servers.namesrv(), free_ports()
        settings: dict[str, str | int] = {"grpcServerEnable": "true", "grpcServerPort": port}
        broker = launch_serving(servers, namesrv, {**settings, "proxyConfigPath": str(proxy)})
        make_topic(broker.address, namesrv.address, "Orders")
        yield Target(broker, namesrv.address, port)
        assert servers.errors() == []
    finally:
        servers.close()


def all_of(clients: list[Client], what: str) -> bool:
    """Return true if so many streams are answered or ended."""
    return bool(sum(getattr(each, what) for each in clients) == STREAMS)


@pytest.mark.parametrize("reads", [True, False])
def test_ten_thousand_streams_take_bounded_memory_and_give_it_back(target: Target, reads: bool):
    broker, peaks = target.broker, []
    sockets, memory = socket_count(broker), broker.rss_bytes()
    for ends_in_order in (True, False):
        clients = target.connect(reads=reads)
        broker.wait_until(lambda: target.producers() == STREAMS, LIMIT_S, "know all clients")
        if reads:
            broker.wait_until(partial(all_of, clients, "answered"), LIMIT_S, "answer all settings")
        # A relayed connection has three ends.
        assert socket_count(broker) <= sockets + 3 * CONNECTIONS
        peaks.append(broker.rss_bytes())
        if ends_in_order:
            for each in clients:
                each.end()
        if ends_in_order and reads:
            broker.wait_until(partial(all_of, clients, "ended"), LIMIT_S, "end all streams")
        for each in clients:
            each.sock.shutdown(socket.SHUT_RDWR)
            each.sock.close()
        target.check_free(sockets)
    print(f"{(peaks[0] - memory) / STREAMS:,.0f} bytes a stream, then {(peaks[1] - memory) / STREAMS:,.0f}")

    assert peaks[0] - memory < STREAMS * MOST_OF_A_STREAM
    assert peaks[1] - peaks[0] < 32 << 20, "the second time takes no more"

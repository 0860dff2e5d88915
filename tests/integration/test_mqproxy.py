"""mqproxy as a process, before brokers of a cluster and with one of its own, by a client of plain grpcio."""

import asyncio
import json
import queue
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

import grpc
from google.protobuf.duration_pb2 import Duration

from rocketbroker.codec.remoting.headers.pop import PollingInfoRequestHeader, PollingInfoResponseHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy.call_context import header_of
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.grpc_calls import metadata_of, method
from tests.support.grpc_script import message, publishing, resource, subscribing
from tests.support.grpc_servers import SETTINGS
from tests.support.metrics_script import read_page
from tests.support.our_servers import BOOT_LIMIT, OurServer, OurServers, launch_serving, make_topic
from tests.support.ports import free_ports
from tests.support.running import stopping
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

LIMIT_S = 60
# grpcio says either of a call that a server ends.
ENDED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


class Client:
    """A client of a proxy: calls, and one telemetry stream."""

    def __init__(self, endpoints: str, client_id: str, settings: pb.Settings) -> None:
        self._channel = grpc.insecure_channel(endpoints)
        grpc.channel_ready_future(self._channel).result(timeout=LIMIT_S)
        self._metadata = metadata_of(client_id)
        self._sent: queue.Queue[pb.TelemetryCommand | None] = queue.Queue()
        self._sent.put(pb.TelemetryCommand(settings=settings))
        commands = iter(self._sent.get, None)
        self.commands = method(self._channel, "Telemetry")(commands, metadata=self._metadata)
        assert next(self.commands).HasField("settings")

    def close(self) -> None:
        self._sent.put(None)
        self._channel.close()

    def call(self, name: str, request: object) -> object:
        return method(self._channel, name)(request, metadata=self._metadata)

    def send(self, topic: str, number: int, body: bytes = b"body", **system: object) -> pb.SendMessageResponse:
        request = pb.SendMessageRequest(messages=[message(topic, number, body, **system)])
        reply = self.call("SendMessage", request)
        assert isinstance(reply, pb.SendMessageResponse)
        return reply

    def poll(self, topic: str) -> Iterator[pb.ReceiveMessageResponse]:
        request = pb.ReceiveMessageRequest(
            group=resource("billing"),
            message_queue=pb.MessageQueue(topic=resource(topic)),
            batch_size=8,
            auto_renew=True,
            long_polling_timeout=Duration(seconds=20),
        )
        replies: Iterator[pb.ReceiveMessageResponse] = self.call("ReceiveMessage", request)  # type: ignore[assignment]
        return replies

    def receive(self, topic: str) -> list[pb.Message]:
        """Receive until there are messages."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            if found := [each.message for each in self.poll(topic) if each.HasField("message")]:
                return found
        pytest.fail(f"no message of {topic}")

    def ack(self, topic: str, received: pb.Message) -> int:
        entry = pb.AckMessageEntry(receipt_handle=received.system_properties.receipt_handle)
        request = pb.AckMessageRequest(group=resource("billing"), topic=resource(topic), entries=[entry])
        return int(self.call("AckMessage", request).status.code)  # type: ignore[attr-defined]


@pytest.fixture
def namesrv(servers: OurServers) -> OurServer:
    return servers.namesrv()


@pytest.fixture
def broker(servers: OurServers, namesrv: OurServer) -> OurServer:
    broker = launch_serving(servers, namesrv, SETTINGS)
    make_topic(broker.address, namesrv.address, "Orders", 2)
    make_topic(broker.address, namesrv.address, "Paid", 1, message_type="TRANSACTION")
    return broker


@pytest.fixture
def connect() -> Iterator[Callable[[OurServer, str, pb.Settings], Client]]:
    clients: list[Client] = []

    def make(proxy: OurServer, client_id: str, settings: pb.Settings) -> Client:
        clients.append(Client(proxy.address, client_id, settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


Connect = Callable[[OurServer, str, pb.Settings], Client]
CONSUMER = subscribing("billing", topic="Orders")


@pytest.mark.proves("POP and the gRPC port", "mqproxy: several side by side")
def test_proxies_stand_side_by_side(servers: OurServers, namesrv: OurServer, broker: OurServer, connect: Connect):
    first, second = (servers.proxy("-n", namesrv.address) for _ in range(2))
    producer = connect(first, "producer", publishing("Orders"))
    receiving, acknowledging = connect(first, "consumer-1", CONSUMER), connect(second, "consumer-2", CONSUMER)
    assert producer.send("Orders", 1, b"1").status.code == pb.OK
    [received] = receiving.receive("Orders")
    assert received.body == b"1"
    assert acknowledging.ack("Orders", received) == pb.OK
    assert producer.send("Orders", 2, b"2").status.code == pb.OK
    [received] = acknowledging.receive("Orders")
    assert receiving.ack("Orders", received) == pb.OK
    route = producer.call("QueryRoute", pb.QueryRouteRequest(topic=resource("Orders")))
    assert isinstance(route, pb.QueryRouteResponse)

    assert {each.broker.endpoints.addresses[0].port for each in route.message_queues} == {first.port}
    assert servers.errors() == []


@pytest.mark.proves("POP and the gRPC port", "mqproxy: open transactions are asked for")
def test_a_producer_is_asked_for_the_outcome_of_its_transaction(
    servers: OurServers, namesrv: OurServer, broker: OurServer, connect: Connect
):
    proxy = servers.proxy("-n", namesrv.address)
    producer = connect(proxy, "producer", publishing("Paid"))
    consumer = connect(proxy, "consumer", subscribing("billing", topic="Paid"))
    assert producer.send("Paid", 1, b"half", message_type=pb.TRANSACTION).status.code == pb.OK
    question = next(producer.commands).recover_orphaned_transaction_command
    assert (question.message.body, question.transaction_id) == (b"half", f"01{1:032X}")
    end = pb.EndTransactionRequest(
        topic=resource("Paid"),
        message_id=question.message.system_properties.message_id,
        transaction_id=question.transaction_id,
        resolution=pb.COMMIT,
        source=pb.SOURCE_SERVER_CHECK,
    )
    assert producer.call("EndTransaction", end).status.code == pb.OK  # type: ignore[attr-defined]
    [received] = consumer.receive("Paid")

    assert received.body == b"half"


@pytest.mark.proves("POP and the gRPC port", "mqproxy: a broker that has moved is found")
def test_a_broker_that_starts_again_elsewhere_is_found(
    servers: OurServers, namesrv: OurServer, broker: OurServer, connect: Connect
):
    proxy = servers.proxy("-n", namesrv.address)
    producer, consumer = connect(proxy, "producer", publishing("Orders")), connect(proxy, "consumer", CONSUMER)
    assert producer.send("Orders", 1, b"before").status.code == pb.OK
    broker.stop()
    refused = producer.send("Orders", 2)
    assert refused.status.code == pb.INTERNAL_SERVER_ERROR
    again = servers.launch_broker(namesrv.address, broker.store, SETTINGS)
    again.wait_for("boot success", BOOT_LIMIT)
    until, number = time.monotonic() + LIMIT_S, 3
    while producer.send("Orders", number, b"after %d" % number).status.code != pb.OK:
        assert time.monotonic() < until
        number += 1  # the broker may have stored it
    found: list[bytes] = []
    while {b"before", b"after %d" % number} - set(found):
        for received in consumer.receive("Orders"):
            found.append(received.body)
            assert consumer.ack("Orders", received) == pb.OK

    assert len(found) == len(set(found))


def waiting_pops(broker: OurServer, topic: str) -> int:
    """Ask a broker how many pops of the group wait for messages of a topic."""

    async def ask() -> int:
        async with stopping(RemotingClient({})) as remoting:
            header = PollingInfoRequestHeader("billing", topic, -1)
            answer = await remoting.invoke(broker.address, request(RequestCode.POLLING_INFO, header), LIMIT_S)
            return header_of(answer, PollingInfoResponseHeader).polling_num

    return asyncio.run(ask())


@pytest.mark.proves("POP and the gRPC port", "mqproxy: messages of a cancelled receive return")
def test_messages_for_a_receive_that_was_cancelled_go_to_others(
    servers: OurServers, namesrv: OurServer, broker: OurServer, connect: Connect
):
    proxy = servers.proxy("-n", namesrv.address, "-pm", "cluster", defaultInvisibleTimeMills=3_600_000)
    gone, other = connect(proxy, "consumer-1", CONSUMER), connect(proxy, "consumer-2", CONSUMER)
    producer = connect(proxy, "producer", publishing("Orders"))
    poll: Any = gone.poll("Orders")
    broker.wait_until(lambda: waiting_pops(broker, "Orders") == 1, LIMIT_S, "hold the pop")
    poll.cancel()
    gone.call("QueryRoute", pb.QueryRouteRequest(topic=resource("Orders")))  # on its connection, after the cancellation
    assert producer.send("Orders", 1, b"1").status.code == pb.OK
    [received] = other.receive("Orders")

    assert (received.body, received.system_properties.delivery_attempt) == (b"1", 2)
    assert "client consumer-1 at" in proxy.wait_for("went away from a receive: 1 messages return to group billing")


@pytest.mark.proves("POP and the gRPC port", "mqproxy: a stop ends polls and streams")
def test_a_stop_ends_polls_and_streams(servers: OurServers, namesrv: OurServer, broker: OurServer, connect: Connect):
    proxy = servers.proxy("-n", namesrv.address)
    consumer = connect(proxy, "consumer", CONSUMER)
    poll = consumer.poll("Orders")
    broker.wait_until(lambda: waiting_pops(broker, "Orders") == 1, LIMIT_S, "hold the pop")
    # The stop must not wait for the poll of 20 s.
    began = time.monotonic()
    proxy.process.send_signal(signal.SIGTERM)
    assert proxy.wait() == 0
    took_s = time.monotonic() - began
    with pytest.raises(grpc.RpcError) as raised:
        list(poll)

    assert raised.value.code() in ENDED
    assert took_s < 15
    assert servers.errors() == []


def test_a_proxy_in_local_mode_has_a_broker(servers: OurServers, namesrv: OurServer, connect: Connect):
    port, metrics_port = free_ports(-2, 1), free_ports()
    properties = servers.settings_file(
        "local",
        {
            "brokerName": "broker-l",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": str(servers.home / "local"),
            "mappedFileSizeCommitLog": 16 << 20,
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": metrics_port,
        },
    )
    proxy = servers.proxy("-pm", "local", "-bc", str(properties), "-n", namesrv.address, maxMessageSize=100)
    make_topic(f"127.0.0.1:{port}", namesrv.address, "Orders", 1)
    producer, consumer = connect(proxy, "producer", publishing("Orders")), connect(proxy, "consumer", CONSUMER)
    assert producer.send("Orders", 1, b"1").status.code == pb.OK
    too_large = producer.send("Orders", 2, bytes(101))
    [received] = consumer.receive("Orders")

    assert received.body == b"1"
    assert too_large.status.code == pb.MESSAGE_BODY_TOO_LARGE, "a setting of the file"
    page = read_page(f"http://127.0.0.1:{metrics_port}/metrics")
    assert re.search(r'rocketmq_proxy_up\{.*node_type="proxy",.*proxy_mode="local"} 1.0', page)
    assert 'method="SendMessage",code="message_body_too_large"} 1.0' in page
    assert proxy.stop() == 0


def test_a_proxy_has_metrics_and_says_if_it_is_ready(servers: OurServers, connect: Connect):
    namesrv, port = servers.namesrv(), free_ports()
    url = f"http://127.0.0.1:{port}"
    proxy = servers.proxy(
        "-n", namesrv.address, metricsExporterType="PROM", metricsPromExporterPort=port, proxyName="p-1"
    )
    with pytest.raises(HTTPError) as refused:
        read_page(f"{url}/readyz")
    refused.value.close()
    assert refused.value.code == 503

    broker = servers.broker(namesrv.address)
    make_topic(broker.address, namesrv.address, "Orders", 1)
    producer = connect(proxy, "producer", publishing("Orders"))
    assert producer.send("Orders", 1, b"1").status.code == pb.OK
    wait_until(lambda: is_ready(url), "the proxy is ready")
    page = read_page(f"{url}/metrics")
    assert 'rocketmq_proxy_up{cluster="DefaultCluster",node_id="p-1",' in page
    assert 'node_id="p-1",method="SendMessage",code="ok"} 1.0' in page
    assert json.loads(read_page(f"{url}/healthz"))["status"] == "ok"


def is_ready(url: str) -> bool:
    try:
        body = json.loads(read_page(f"{url}/readyz"))
    except HTTPError as error:
        error.close()
        return False
    assert body["conditions"] == {"brokers": {"ok": True, "reason": "1 masters are registered"}}
    return True


@pytest.mark.parametrize(
    ("arguments", "settings", "text"),
    [
        ([], "{}", "mqproxy: there is no name server: give -n HOST:PORT, NAMESRV_ADDR, or namesrvAddr in the file"),
        (["-n", "10.0.0.1"], "{}", "namesrvAddr=10.0.0.1 is not valid: it takes host:port, several joined by ';'"),
        (["-pm", "both"], "{}", "mqproxy: proxyMode=both is unknown; write CLUSTER or LOCAL"),
        (["-n", "127.0.0.1:9"], '{"grpcServerPrt": 1}', "did you mean grpcServerPort"),
        (
            ["-n", "127.0.0.1:9"],
            '{"tlsTestModeEnable": false, "tlsCertPath": "/n", "tlsKeyPath": "/n"}',
            "/n is no file",
        ),
        (["-n", "127.0.0.1:9"], '{"grpcServerPort": %d}', "cannot listen on "),
    ],
)
def test_a_start_that_fails_says_why_in_a_line(servers: OurServers, arguments: list[str], settings: str, text: str):
    conf = servers.home / "rmq-proxy.json"
    with socket.create_server(("0.0.0.0", 0)) as other:
        conf.write_text(settings.replace("%d", str(other.getsockname()[1])))
        command = servers.command("app.proxy_startup", "-pc", str(conf), *arguments)
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=servers.environment(),
            check=False,
            cwd=servers.home,
        )

    assert done.returncode == 1
    assert text in done.stderr
    assert [line for line in done.stderr.splitlines() if "Traceback" in line] == []

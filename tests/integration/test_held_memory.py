"""Peers that begin much and finish nothing: a broker process keeps to its memory, serves others, and gives it back."""

import contextlib
import json
import socket

import pytest

from tests.support.our_servers import OurServer, status_bytes
from tests.support.raw_client import RawClient, raw_frame, raw_header
from tests.support.raw_requests import consumer_data, send_fields
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

MIB = 1 << 20
SEND, HEART_BEAT, CONSUMER_RUNNING_INFO = 310, 34, 307
BUDGET = 512 * MIB
# Buffers in the kernel are no memory of the process; what a growing buffer is copied from is, and Python's own.
OVERHEAD = 96 * MIB


def send(client: RawClient, number: int) -> None:
    answer = client.ask(SEND, send_fields("Held"), b"served meanwhile", number)
    assert answer.code == 0, answer.remark


def begin(address: str, data: bytes, stack: contextlib.ExitStack) -> None:
    """A connection that sends these bytes and no more; it may be dropped meanwhile."""
    host, _, port = address.rpartition(":")
    peer = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
    with contextlib.suppress(ConnectionError):
        peer.sendall(data)


def test_half_frames_are_bounded_and_given_back(broker: OurServer):
    whole = raw_frame(raw_header(SEND, send_fields("Held")), bytes(15 * MIB))
    with RawClient(broker.address) as bystander, contextlib.ExitStack() as stack:
        send(bystander, 1)
        before = status_bytes(broker, "VmRSS")
        for number in range(120):
            begin(broker.address, whole[:-1], stack)
            send(bystander, 2 + number)

        assert status_bytes(broker, "VmHWM") - before < BUDGET + OVERHEAD
        broker.wait_for("(maxHeldBytes)")
        stack.close()
        with RawClient(broker.address) as another:
            wait_until(lambda: status_bytes(broker, "VmRSS") - before < OVERHEAD, "memory is given back")
            send(another, 1)


def test_waiting_requests_are_bounded_and_end_with_their_connection(broker: OurServer):
    with RawClient(broker.address) as consumer, RawClient(broker.address) as bystander:
        heartbeat = {"clientID": "stalled", "producerDataSet": [], "consumerDataSet": [consumer_data("CG_Stalled")]}
        assert consumer.ask(HEART_BEAT, None, json.dumps(heartbeat).encode()).code == 0
        send(bystander, 1)
        before = status_bytes(broker, "VmRSS")
        fields = {"consumerGroup": "CG_Stalled", "clientId": "stalled", "jstackEnable": "false"}
        with contextlib.ExitStack() as stack:
            for size in (12 * MIB, 1_000_000):
                request = raw_frame(raw_header(CONSUMER_RUNNING_INFO, fields), bytes(size))
                host, _, port = broker.address.rpartition(":")
                peer = stack.enter_context(socket.create_connection((host, int(port)), timeout=2))
                sent = 0
                with contextlib.suppress(TimeoutError):
                    for sent in range(200):
                        peer.sendall(request)
                        send(bystander, 2 + sent)
            assert sent < 200, "the broker reads no more of them"
            assert status_bytes(broker, "VmHWM") - before < OVERHEAD
        wait_until(lambda: status_bytes(broker, "VmRSS") - before < 48 * MIB, "memory is given back")
        send(bystander, 1_000)

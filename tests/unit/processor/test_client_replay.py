"""All recorded client management against the processors, in the order of the recording, answers compared by field."""

import gzip
import json
from collections import Counter
from functools import cache

import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import MethodTable
from rocketbroker.codec.remoting.headers.admin import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from rocketbroker.codec.remoting.remoting_command import to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.processor.client_manage import ClientManageRequests
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import GOLDEN, exchanges, frames
from tests.support.processor_calls import family
from tests.support.processors import heart_beat_processor


def client_table(parts):
    table = MethodTable()
    heart_beat = heart_beat_processor(parts)
    table.add(RequestCode.HEART_BEAT, heart_beat.heart_beat)
    unregister = family(ClientManageRequests, parts)
    table.add(RequestCode.UNREGISTER_CLIENT, unregister.unregister_client, UnregisterClientRequestHeader)
    consumer_list = family(ClientManageRequests, parts)
    table.add(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        consumer_list.get_consumer_list_by_group,
        GetConsumerListByGroupRequestHeader,
    )
    lock = family(ClientManageRequests, parts)
    table.add(RequestCode.LOCK_BATCH_MQ, lock.lock_batch_mq)
    table.add(RequestCode.UNLOCK_BATCH_MQ, family(ClientManageRequests, parts).unlock_batch_mq)
    return table.routes


def in_order(body):
    """JSON with its lists sorted: Java's sets come in any order."""
    if not body:
        return None
    return {key: sorted(map(str, value)) for key, value in json.loads(bytes(body)).items()}


@cache
def recorded() -> dict[int, tuple[int, str]]:
    """Return the time in ms and the link of each recorded frame."""
    lines = gzip.decompress((GOLDEN / "session.jsonl.gz").read_bytes()).splitlines()
    return {line["n"]: (line["t"], line["map"]) for line in map(json.loads, lines)}


class Replay:
    """Feeds requests to the processors and keeps the answers that differ from the recorded ones."""

    def __init__(self, parts, link):
        self.parts = parts
        self.link = link
        self.routes = client_table(parts)
        self.served: Counter[int] = Counter()
        self.differing: list[tuple[object, ...]] = []
        self._connections = {}
        self._last_frame = {frame.conversation[0]: frame.number for frame in frames()}

    def run(self):
        start = min(recorded().values())[0] - self.parts.clock.monotonic() * 1000
        # An answer is the moment at which the recorded broker had served the request.
        for exchange in sorted(exchanges(), key=lambda each: (each.response or each.request).number):
            time_ms, link = recorded()[exchange.request.number]
            if exchange.request.code in self.routes and link == self.link:
                self._close_gone(exchange.request.number)
                self.parts.clock.advance(max(0.0, (time_ms - start) / 1000 - self.parts.clock.monotonic()))
                self._serve(exchange)

    def _close_gone(self, number):
        for conn in [conn for conn in self._connections if self._last_frame[conn] < number]:
            closed = self._connections.pop(conn)
            self.parts.consumers.close_connection(closed)
            self.parts.producers.close_connection(closed)

    def _serve(self, exchange):
        request, recorded = exchange.request, exchange.response
        conn = request.conversation[0]
        connection = self._connections.setdefault(conn, FakeConnection(f"127.0.0.1:{conn}"))
        route = self.routes[request.code]
        command = route.decode(int(request.binary), memoryview(request.header()))
        command.body = memoryview(request.body())
        answer = route.process(connection, command)
        if recorded is None:
            return
        self.served[request.code] += 1
        theirs = recorded.command()
        ours = (answer.code, answer.remark, to_ext_fields(answer.header) or {}, in_order(answer.body))
        theirs = (theirs.code, theirs.remark, theirs.header or {}, in_order(theirs.body))
        if ours != theirs:
            self.differing.append((request.number, request.client, ours, theirs))


@pytest.mark.parametrize(
    ("link", "served"),
    [("broker-a", {34: 232, 35: 178, 38: 177, 41: 66, 42: 4}), ("broker-a-slave", {34: 162, 35: 155})],
)
def test_recorded_client_management(parts, link, served):
    parts.topic_configs.update(TopicConfig("GoldenTopic", 4, 4))
    replay = Replay(parts, link)
    replay.run()
    assert replay.differing == []
    assert replay.served == served

from collections.abc import Sequence

import pytest

from rocketbroker.codec.remoting.audience import Audience
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.header_template import INT, VaryingField
from rocketbroker.codec.remoting.headers.offset import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.hot_responses import success_response
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.transport.connection_limits import ConnectionLimits
from rocketbroker.transport.endpoint import Endpoint
from tests.support.transports import attach, connect, feed

CODE = 31


class Runs:
    """Handler that answers runs, or leaves them to be handled one by one."""

    fields = (VaryingField("queue_id", INT),)

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.topics: list[str] = []
        self.alone = 0
        self.leaves = False

    def accepts(self, command: Command) -> bool:
        return not command.flag

    def process(
        self, connection: Connection, command: Command, values: Sequence[Sequence[bytes]], bodies: Sequence[memoryview]
    ) -> bytes | None:
        self.topics.append(command.header.topic)
        assert [bytes(body) for body in bodies] == [queue_id for queue_id, _ in values]
        if self.leaves:
            return None
        self.sizes.append(len(values))
        return b"".join(success_response(int(opaque)) for _, opaque in values)

    def process_one(self, connection: Connection, command: Command) -> bytes:
        self.alone += 1
        return success_response(command.opaque)

    def routes(self) -> dict[int, Route]:
        route = Route(CODE, self.process_one, GetMinOffsetRequestHeader, takes_large_bodies=True, runs=self)
        return {CODE: route}


def frames(count: int, first: int = 1, topic: str = "T", *, oneway: bool = False) -> bytes:
    made = []
    for number in range(first, first + count):
        command = request(CODE, GetMinOffsetRequestHeader(topic, number), b"%d" % number, oneway=oneway)
        command.opaque = number
        made.append(encode_frame(command))
    return b"".join(made)


async def test_requests_that_fit_the_template_are_handled_together():
    runs = Runs()
    connection, transport, endpoint = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(150, 10))

    # The request after a full run ends it, and is handled by itself.
    assert (runs.sizes, runs.alone) == ([64, 64, 20], 9 + 2)
    assert [answer.opaque for answer in transport.answers] == list(range(1, 160))
    assert {key.code: latency.count for key, latency in endpoint.meter.figures.items()} == {CODE: 159}


async def test_few_requests_and_a_lone_one_are_handled_one_by_one():
    runs = Runs()
    connection, transport, _ = connect(runs.routes())

    for first, count in ((1, 9), (10, 1), (11, 5), (16, 6)):
        feed(connection, frames(count, first))

    assert (runs.sizes, runs.alone) == ([6], 15)
    assert [answer.opaque for answer in transport.answers] == list(range(1, 22))


async def test_a_request_that_differs_ends_the_run_and_keeps_its_place():
    runs = Runs()
    connection, transport, _ = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(10, 10) + frames(1, 20, "Other") + frames(1, 21, oneway=True) + frames(10, 22))

    assert (runs.sizes, runs.alone) == ([10, 10], 11)
    assert [answer.opaque for answer in transport.answers] == [*range(1, 21), *range(22, 32)]


async def test_a_run_that_its_handler_leaves_is_handled_one_by_one():
    runs = Runs()
    connection, transport, _ = connect(runs.routes())
    runs.leaves = True

    feed(connection, frames(100))

    assert (runs.sizes, runs.alone) == ([], 100)
    assert [answer.opaque for answer in transport.answers] == list(range(1, 101))


async def test_an_error_is_the_answer_to_each_request_of_the_run(monkeypatch, caplog):
    runs = Runs()
    connection, transport, endpoint = connect(runs.routes())
    monkeypatch.setattr(Runs, "process", lambda *_: 1 // 0)

    feed(connection, frames(9))
    feed(connection, frames(10, 10))

    assert runs.alone == 9
    assert [answer.opaque for answer in transport.answers] == list(range(1, 20))
    assert [answer.code for answer in transport.answers[9:]] == [1] * 10
    assert "ZeroDivisionError" in str(transport.answers[-1].remark)
    assert caplog.text.count("request code 31 failed") == 1
    assert {(key.response_code, latency.count) for key, latency in endpoint.meter.figures.items()} == {(0, 9), (1, 10)}


async def test_a_new_template_is_learned_after_ever_more_requests():
    runs = Runs()
    connection, _, _ = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(7, 10))
    feed(connection, frames(7 + 5, 20, "Other"))
    feed(connection, frames(7, 40))
    assert runs.sizes == [7, 7]

    feed(connection, frames(1 + 5, 50, "Other"))
    feed(connection, frames(7, 60))
    feed(connection, frames(7, 70, "Other"))
    assert runs.sizes == [7, 7, 7]
    assert runs.topics == ["T", "T", "Other"]


async def test_the_request_that_does_not_fit_is_learned_not_those_before_it():
    runs = Runs()
    connection, _, _ = connect(runs.routes())
    feed(connection, frames(9))

    for _ in range(8):
        feed(connection, frames(3) + frames(1, 9, "Other") + frames(6))
    feed(connection, frames(7, 1, "Other"))

    assert runs.topics[-1] == "Other"


async def test_an_unknown_request_among_others_teaches_nothing():
    runs = Runs()
    connection, transport, _ = connect(runs.routes())
    unknown = encode_frame(request(999, GetMinOffsetRequestHeader("T", 1), b"1"))

    for number in range(9):
        feed(connection, unknown * 7)
        feed(connection, frames(1, 1 + number))
    feed(connection, frames(7, 10))

    assert (runs.sizes, runs.alone) == ([], 16)
    assert transport.answers[-1].opaque == 16


@pytest.mark.parametrize(("length", "sizes"), [(2048, [20]), (2049, [])])
async def test_no_template_is_learned_from_a_long_header(length: int, sizes: list[int]):
    runs = Runs()
    connection, transport, _ = connect(runs.routes())
    short = int.from_bytes(frames(1)[4:8], "big")
    topic = "T" * (length - short + 1)

    feed(connection, frames(9, 1, topic))
    feed(connection, frames(9, 1, topic) * 2 + frames(2, 8, topic))

    assert runs.sizes == sizes
    assert len(transport.answers) == 29


async def test_a_longer_header_than_is_accepted_does_not_join():
    runs = Runs()
    first = frames(1)
    longest = int.from_bytes(first[4:8], "big")
    connection, transport, _ = connect(runs.routes(), limits=ConnectionLimits(max_header_length=longest))

    feed(connection, frames(9))
    feed(connection, frames(1, 100) * 7)

    assert transport.closed
    assert runs.sizes == []
    assert [answer.opaque for answer in transport.answers[:9]] == list(range(1, 10))


async def test_a_changed_audience_takes_the_template_away():
    runs = Runs()
    route = runs.routes()[CODE]
    route.audience = Audience.ADMINISTRATION
    admitted = [Audience.ADMINISTRATION]
    endpoint = Endpoint("test", {CODE: route}, admit=lambda _peer, _own: admitted[0])
    connection, transport = attach(endpoint)
    endpoint.accept(connection, -1)
    feed(connection, frames(9))
    feed(connection, frames(10, 10))
    assert runs.sizes == [10]

    admitted[0] = Audience.CLIENT
    endpoint.readmit()
    feed(connection, frames(10, 30))

    assert runs.sizes == [10]
    assert [answer.code for answer in transport.answers[19:]] == [16] * 10

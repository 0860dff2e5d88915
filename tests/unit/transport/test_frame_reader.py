"""Tests of FrameReader: frames cut anywhere, broken ones, limits of headers and bodies, runs."""

import asyncio
import errno
import os
from collections.abc import Callable

import pytest

from rocketbroker.codec.remoting.frame import SERIALIZE_JSON, SERIALIZE_ROCKETMQ, encode_frame
from rocketbroker.codec.remoting.handler import Audience, Route
from rocketbroker.codec.remoting.header_template import Decode
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request, response
from rocketbroker.transport.endpoint import Endpoint, EndpointHooks
from rocketbroker.transport.frame_reader import RequestRun
from rocketbroker.transport.peer_limits import ConnectionLimits
from rocketbroker.transport.responder import HandledRun, Responder
from tests.support.transports import (
    ECHO,
    ENCODED,
    HOLDING,
    LATER,
    PIECES,
    TYPED,
    Handlers,
    Runs,
    attach,
    connect,
    feed,
    frame,
    frames,
)
from tests.support.transports import RUN as CODE
from tests.support.waiting import turns, until

TYPED_HEADER = GetMinOffsetRequestHeader("T", 3)
LIMITS = ConnectionLimits(max_header_length=1_000, max_request_body_size=10_000)
KINDS = pytest.mark.parametrize("kind", [SERIALIZE_JSON, SERIALIZE_ROCKETMQ])


class TestFrames:
    STREAM = b"".join(
        (
            frame(ECHO, b"first", 1),
            frame(TYPED, b"", 2, TYPED_HEADER),
            frame(ECHO, b"x" * 300, 3, serialize_type=SERIALIZE_ROCKETMQ),
            frame(ENCODED, b"", 4),
            frame(PIECES, b"", 5),
            frame(ECHO, b"", 6, oneway=True),
        )
    )
    SEEN = ((ECHO, b"first"), (TYPED, b""), (ECHO, b"x" * 300), (ECHO, b""))

    async def test_several_in_one_read_are_answered_by_one_write(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, self.STREAM)

        assert transport.writes == 1
        assert [answer.opaque for answer in transport.answers] == [1, 2, 3, 4, 5]
        assert [bytes(answer.body) for answer in transport.answers[:3]] == [b"first", b"", b"x" * 300]
        assert all(answer.is_response and answer.code == 0 for answer in transport.answers)
        assert handlers.seen == list(self.SEEN)

    async def test_byte_by_byte(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, self.STREAM, range(1, len(self.STREAM)))

        assert [answer.opaque for answer in transport.answers] == [1, 2, 3, 4, 5]
        assert handlers.seen == list(self.SEEN)

    async def test_cut_at_any_place(self):
        for cut in range(1, len(self.STREAM)):
            handlers = Handlers()
            connection, transport, _ = connect(handlers.routes())

            feed(connection, self.STREAM, [cut])

            assert [answer.opaque for answer in transport.answers] == [1, 2, 3, 4, 5], cut
            assert handlers.seen == list(self.SEEN), cut

    async def test_larger_than_the_buffer_with_others_around_it(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        large = os.urandom(700_000)

        feed(connection, frame(ECHO, b"a", 1) + frame(ECHO, large, 2) + frame(ECHO, b"b", 3))
        await turns()

        assert [body for _, body in handlers.seen] == [b"a", large, b"b"]
        assert [bytes(answer.body) for answer in transport.answers] == [b"a", large, b"b"]

    async def test_a_frame_of_a_header_alone(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        header = b'{"code":310}'

        feed(connection, (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)

        assert [answer.code for answer in transport.answers] == [0]

    async def test_a_header_in_another_order(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        header = b' {"opaque":9,"flag":0, "code":31,"extFields":{"queueId":3,"topic":"T"}}\n'

        feed(connection, (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)

        assert [(answer.code, answer.opaque) for answer in transport.answers] == [(0, 9)]

    async def test_of_two_codes_the_last_one_counts(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        header = b'{"code":31,"opaque":9,"flag":0,"extFields":{"queueId":3,"topic":"T"},"code":310}'

        feed(connection, (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)

        assert [(answer.code, answer.opaque) for answer in transport.answers] == [(0, 9)]
        assert handlers.seen == [(ECHO, b"")]

    async def test_many_in_one_read_are_written_in_parts(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, b"".join(frame(ECHO, b"", number) for number in range(1000)))

        assert [answer.opaque for answer in transport.answers] == list(range(1000))
        assert 1 < transport.writes < 50


class TestBrokenPeers:
    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"\xff\xff\xff\xff" + bytes(8), "frame length -1 is below the minimum of 4"),
            (bytes(12), "frame length 0 is below the minimum of 4"),
            ((20_001).to_bytes(4, "big") + bytes(8), "frame length 20001 exceeds the limit of 20000 bytes"),
            (b"GET / HTTP/1.1\r\n\r\n", "the peer speaks HTTP; this port serves"),
            (b"OPTIONS * HTTP/1.1\r\n\r\n", "the peer speaks HTTP; this port serves"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "the peer speaks HTTP/2, as gRPC clients do"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "the peer speaks TLS, and this side does not"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the peer answers in HTTP"),
            ((8).to_bytes(4, "big") + (100).to_bytes(4, "big") + bytes(4), "header length 100 exceeds the 4 bytes"),
            ((8).to_bytes(4, "big") + b"\x07\0\0\x04" + bytes(4), "header encoding 7 is unknown"),
            ((8).to_bytes(4, "big") + b"\0\0\0\x04[{}]", "JSON header"),
            ((8).to_bytes(4, "big") + b"\0\0\0\x04{\xff\xfe}", "JSON header"),
            ((6).to_bytes(4, "big") + b"\x01\0\0\x02\x01\x36", ""),
            ((4).to_bytes(4, "big") + b"\x01\0\0\0", ""),
        ],
    )
    async def test_are_answered_with_the_reason_and_closed(self, handlers: Handlers, data: bytes, text: str):
        connection, transport, _ = connect(handlers.routes(), limits=ConnectionLimits(20_000))

        feed(connection, frame(ECHO, b"before", 5) + data + frame(ECHO, b"after", 6))

        good, last = transport.answers
        assert (good.opaque, last.code) == (5, 1)
        assert text in (last.remark or "")
        assert transport.closed
        assert [body for _, body in handlers.seen] == [b"before"]

    @pytest.mark.parametrize("length", [-1, 0, 3, 20_001, 2**31 - 1])
    async def test_a_wrong_length_is_judged_before_anything_follows_it(self, handlers: Handlers, length: int):
        connection, transport, _ = connect(handlers.routes(), limits=ConnectionLimits(20_000))

        feed(connection, frame(ECHO, b"before", 5) + length.to_bytes(4, "big", signed=True))

        good, last = transport.answers
        assert (good.opaque, last.code) == (5, 1)
        assert f"frame length {length} " in (last.remark or "")
        assert transport.closed

    async def test_a_frame_of_just_the_limit_is_served(self, handlers: Handlers):
        whole = frame(ECHO, b"x" * 500)
        connection, transport, _ = connect(handlers.routes(), limits=ConnectionLimits(len(whole) - 4))

        feed(connection, whole)

        assert [answer.code for answer in transport.answers] == [0]


class TestHeaders:
    @KINDS
    async def test_a_longer_one_ends_the_connection_with_a_reason(self, handlers: Handlers, kind: int):
        connection, transport, _ = connect(handlers.routes(), limits=LIMITS)

        feed(connection, frame(ECHO, b"", 1, {"a": "b" * 1_000}, serialize_type=kind))

        assert handlers.seen == []
        assert transport.closed
        assert "exceeds the limit of 1000 bytes (maxHeaderLength)" in str(transport.answers[0].remark)

    @KINDS
    async def test_it_is_judged_before_the_frame_is_whole(self, handlers: Handlers, kind: int):
        connection, transport, _ = connect(handlers.routes(), limits=LIMITS)

        feed(connection, frame(ECHO, b"", 1, {"a": "b" * 1_000}, serialize_type=kind)[:9])

        assert transport.closed

    @KINDS
    async def test_one_at_the_limit_is_served(self, handlers: Handlers, kind: int):
        short = frame(ECHO, b"", 1, {"a": ""}, serialize_type=kind)
        connection, transport, _ = connect(handlers.routes(), limits=LIMITS)

        feed(connection, frame(ECHO, b"", 1, {"a": "b" * (1_008 - len(short))}, serialize_type=kind))

        assert [answer.code for answer in transport.answers] == [0]

    @KINDS
    async def test_the_properties_of_a_message_fit_however_they_are_written(self, handlers: Handlers, kind: int):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(ECHO, b"", 1, {"i": "\x01" * 32_767}, serialize_type=kind))

        assert [answer.code for answer in transport.answers] == [0]


class TestBodies:
    @KINDS
    @pytest.mark.parametrize("code", [ECHO, LATER, TYPED])
    async def test_a_longer_one_is_rejected_and_the_connection_continues(
        self, handlers: Handlers, kind: int, code: int
    ):
        routes = {number: Route(number, route.process) for number, route in handlers.routes().items()}
        connection, transport, endpoint = connect(routes, limits=LIMITS)

        feed(connection, frame(code, bytes(10_001), 7, serialize_type=kind) + frame(ECHO, b"next", 8))

        assert [(answer.opaque, answer.code) for answer in transport.answers] == [(7, 1), (8, 0)]
        assert "10,001 bytes, above the limit of 10,000" in str(transport.answers[0].remark)
        assert "raise maxRequestBodySize" in str(transport.answers[0].remark)
        assert handlers.seen == [(ECHO, b"next")]
        assert endpoint.held_bytes == 0

    async def test_one_at_the_limit_is_served(self, handlers: Handlers):
        routes = {ECHO: Route(ECHO, handlers.routes()[ECHO].process)}
        connection, transport, _ = connect(routes, limits=LIMITS)

        feed(connection, frame(ECHO, bytes(10_000)))

        assert transport.answers[0].code == 0

    async def test_messages_are_bounded_by_their_own_limit(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=LIMITS)

        feed(connection, frame(ECHO, bytes(100_000)))

        assert transport.answers[0].code == 0

    async def test_nothing_is_answered_to_one_that_wants_no_answer(self, handlers: Handlers):
        routes = {HOLDING: Route(HOLDING, handlers.routes()[HOLDING].process)}
        connection, transport, _ = connect(routes, limits=LIMITS)

        feed(connection, frame(HOLDING, bytes(10_001), oneway=True))

        assert (handlers.seen, bytes(transport.written)) == ([], b"")
        assert connection.send_oneway(request(ECHO))


async def test_requests_that_fit_the_template_are_handled_together():
    runs = Runs()
    connection, transport, endpoint = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(150, 10))

    assert (runs.sizes, runs.alone) == ([64, 64, 22], 9)
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


class TestWaitingRuns:
    """Runs whose answers wait for one thing."""

    @pytest.fixture
    def runs(self) -> Runs:
        runs = Runs()
        runs.waits = True
        return runs

    async def test_all_requests_of_waiting_runs_are_answered_by_one_write(self, runs: Runs):
        connection, transport, endpoint = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(64 + 16, 10))
        assert (runs.sizes, len(transport.answers)) == ([64, 16], 9)
        writes = transport.writes

        for future, answers in runs.waiting:
            future.set_result(answers)
        await until(lambda: len(transport.answers) == 89)

        assert transport.writes == writes + 1
        assert sorted(answer.opaque for answer in transport.answers) == list(range(1, 90))
        assert {key.code: latency.count for key, latency in endpoint.meter.figures.items()} == {CODE: 89}

    async def test_each_request_may_get_an_answer_of_its_own(self, runs: Runs):
        connection, transport, endpoint = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(7, 10))

        runs.waiting[-1][0].set_result([response(10 + number) for number in range(7)])
        await until(lambda: len(transport.answers) > 9)

        assert [(one.opaque, one.code) for one in transport.answers[9:]] == [(10 + n, 10 + n) for n in range(7)]
        latencies = {key.response_code: latency for key, latency in endpoint.meter.figures.items()}
        assert [latencies[10 + number].count for number in range(7)] == [1] * 7
        assert max(latency.seconds for latency in latencies.values()) < 3600, "timed from their read event"

    async def test_an_error_is_the_answer_to_each_request(self, runs: Runs, caplog):
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(7, 10))

        runs.waiting[-1][0].set_exception(OSError(errno.EIO, "disk"))
        await until(lambda: len(transport.answers) > 9)

        assert [(one.opaque, one.code) for one in transport.answers[9:]] == [(10 + n, 1) for n in range(7)]
        assert caplog.text.count("request code 31 failed") == 1

    async def test_a_cancelled_run_gets_no_answer_and_is_no_longer_pending(self, runs: Runs):
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(7, 10))
        assert connection.open_requests == 7

        for future, _ in runs.waiting:
            future.cancel()
        await until(lambda: not connection.open_requests)

        assert len(transport.answers) == 9

    async def test_answers_for_a_closed_connection_go_nowhere(self, runs: Runs):
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(7, 10))
        writes = transport.writes

        connection.connection_lost(None)
        for future, answers in runs.waiting:
            future.set_result(answers)
        await until(lambda: not connection.open_requests)
        await asyncio.sleep(0)

        assert transport.writes == writes

    async def test_a_connection_with_too_many_of_them_is_not_read_until_half_are_answered(self, runs: Runs):
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        for number in range(20):
            feed(connection, frames(64, 100 * number))
            if not transport.reading:
                break
        assert 1024 <= connection.open_requests < 1024 + 64

        for future, answers in runs.waiting[: len(runs.waiting) // 2]:
            assert not transport.reading
            future.set_result(answers)
            await asyncio.sleep(0)
        await until(lambda: transport.reading)

        assert connection.open_requests <= 512


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


class Picky(Runs):
    """Handler that takes runs of some numbers of requests only, and notes which it was asked about."""

    def __init__(self, takes: Callable[[int], bool]) -> None:
        super().__init__()
        self.takes = takes
        self.asked: list[int] = []
        self.is_learned = False

    def accepts(self, command: Command) -> bool:
        self.asked.append(command.opaque)
        return self.takes(command.opaque)

    def learn(self, header: bytes, command: Command, decode: Decode) -> None:
        self.is_learned = True


def miss(picky: Picky, count: int) -> None:
    """Let ``count`` requests fit no template, until one is learned."""
    run, route = RequestRun(1_000, 1_000), picky.routes()[CODE]
    for number in range(1, count + 1):
        if not picky.is_learned:
            run.missed(route, memoryview(b"{}"), RemotingCommand(CODE, opaque=number))


def test_requests_that_no_run_takes_are_seldom_looked_at():
    picky = Picky(lambda _: False)

    miss(picky, 300)

    assert picky.asked == [4, 5, 8, 15, 30, 61, 122, 183, 244]


@pytest.mark.parametrize("period", range(2, 20))
def test_a_peer_that_also_sends_what_no_run_takes_has_a_template_soon(period: int):
    count = 61 * (period + 1)
    for first in range(1, period + 1):
        picky = Picky(range(first, count, period).__contains__)

        miss(picky, count)

        assert picky.is_learned


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
    endpoint = Endpoint("test", {CODE: route}, hooks=EndpointHooks(admit=lambda _peer, _own: admitted[0]))
    connection, transport = attach(endpoint)
    endpoint.accept(connection, transport)
    feed(connection, frames(9))
    feed(connection, frames(10, 10))
    assert runs.sizes == [10]

    admitted[0] = Audience.CLIENT
    endpoint.readmit()
    feed(connection, frames(10, 30))

    assert runs.sizes == [10]
    assert [answer.code for answer in transport.answers[19:]] == [16] * 10


async def test_a_run_keeps_the_opaques_alone(monkeypatch: pytest.MonkeyPatch):
    runs = Runs()
    runs.waits = True
    taken: list[HandledRun] = []
    monkeypatch.setattr(Responder, "take_run", lambda _self, run: taken.append(run))
    connection, *_ = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(8, 10))

    assert [each.opaques for each in taken] == [tuple(b"%d" % opaque for opaque in range(10, 18))]
    assert [command.opaque for command in taken[0].commands()] == list(range(10, 18))

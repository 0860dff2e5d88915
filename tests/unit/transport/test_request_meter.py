"""Counts and times of requests, and the log of slow ones."""

import asyncio
import re

import pytest

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import HELD, Held, InTurn, Route
from rocketbroker.codec.remoting.hot_responses import pull_response_head, send_response, success_response
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.peer_limits import ConnectionLimits
from rocketbroker.transport.request_meter import (
    BUCKETS_S,
    UNKNOWN_CODE,
    Latency,
    RequestKey,
    RequestMeter,
    response_code_of,
)
from tests.support.transports import (
    ECHO,
    ENCODED,
    FAILING,
    FUTURE,
    HOLDING,
    LATER,
    PIECES,
    REFUSING,
    TYPED,
    Handlers,
    connect,
    feed,
    frame,
    set_clock_forward,
)
from tests.support.waiting import until

SLOW = ConnectionLimits(slow_request_s=0.5)


def counts(meter: RequestMeter) -> dict[RequestKey, int]:
    return {key: latency.count for key, latency in meter.figures.items()}


def framed(code: int) -> bytes:
    return encode_frame(response(code))


class TestLatency:
    @pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.001, 0), (0.0011, 1), (0.5, 6), (3.0, 8), (3.1, 9)])
    def test_buckets(self, seconds: float, bucket: int):
        latency = Latency()

        latency.add(seconds, 4)

        assert latency.count == 4
        assert latency.seconds == pytest.approx(4 * seconds)
        assert [index for index, count in enumerate(latency.buckets) if count] == [bucket]
        assert len(latency.buckets) == len(BUCKETS_S) + 1


class TestResponseCode:
    @pytest.mark.parametrize("code", [0, 1, 17, 215, 30_001])
    def test_of_a_frame_with_or_without_its_body(self, code: int):
        whole = encode_frame(response(code, "remark", {"code": "5"}, b"body"))

        assert response_code_of(whole) == code
        assert response_code_of(memoryview(whole)[:-4]) == code

    def test_of_templates(self):
        assert response_code_of(success_response(7)) == ResponseCode.SUCCESS
        assert response_code_of(send_response(7, 1, 2, b"id", None, b"")) == ResponseCode.SUCCESS
        head = pull_response_head(7, ResponseCode.PULL_NOT_FOUND, "none", 0, 1, 2, 3, 0)
        assert response_code_of(head) == ResponseCode.PULL_NOT_FOUND


class TestCounts:
    async def test_each_request_counts_once_by_its_codes(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())

        feed(
            connection,
            frame(ENCODED) + frame(ENCODED) + frame(ECHO) + frame(PIECES) + frame(FAILING) + frame(REFUSING)
            + frame(TYPED, b"", 1, {"topic": "T"}),
        )  # fmt: skip

        assert counts(endpoint.meter) == {
            RequestKey(ENCODED, 0): 2,
            RequestKey(ECHO, 0): 1,
            RequestKey(PIECES, 0): 1,
            RequestKey(FAILING, 1): 1,
            RequestKey(REFUSING, 17): 1,
            RequestKey(TYPED, 1): 1,
        }
        assert len(transport.answers) == 7

    async def test_oneway_requests_count_although_nothing_is_answered(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())

        feed(connection, frame(ENCODED, oneway=True) + frame(ECHO, oneway=True))

        assert counts(endpoint.meter) == {RequestKey(ENCODED, 0, True): 1, RequestKey(ECHO, 0, True): 1}
        assert transport.answers == []

    async def test_unknown_codes_share_one_figure(self, handlers: Handlers):
        connection, _, endpoint = connect(handlers.routes())

        feed(connection, b"".join(frame(code) for code in range(9000, 9050)))

        not_supported = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert counts(endpoint.meter) == {RequestKey(UNKNOWN_CODE, not_supported): 50}

    async def test_a_request_counts_when_its_answer_is_ready(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())

        feed(connection, frame(FUTURE) + frame(LATER))
        assert endpoint.meter.figures == {}

        assert handlers.future is not None
        handlers.future.set_result(response(10))
        handlers.gate.set()
        await until(lambda: len(transport.answers) == 2)
        assert counts(endpoint.meter) == {RequestKey(FUTURE, 10): 1, RequestKey(LATER, 0): 1}

    @pytest.mark.parametrize("in_turn", [False, True])
    async def test_a_held_request_is_long_polling(self, in_turn: bool):
        kept: list[Command] = []

        def hold(_connection: object, command: Command) -> Held:
            kept.append(command)
            return HELD

        async def work() -> Command:
            return response(0)

        connection, transport, endpoint = connect({HOLDING: Route(HOLDING, hold)}, limits=SLOW)
        feed(connection, frame(HOLDING))

        connection.answer(kept[0], lambda: InTurn(work()) if in_turn else response(0))
        connection.flush()

        await until(lambda: transport.answers)
        assert counts(endpoint.meter) == {RequestKey(HOLDING, 0, False, True): 1}

    async def test_what_a_peer_says_of_its_time_does_not_count(self, handlers: Handlers):
        connection, _, endpoint = connect(handlers.routes())
        header = b'{"code":%d,"flag":0,"opaque":1,"_receivedAt":-1e9,"_isSuspended":true}' % ECHO

        feed(connection, (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)

        assert counts(endpoint.meter) == {RequestKey(ECHO, 0): 1}
        assert endpoint.meter.figures[RequestKey(ECHO, 0)].seconds < 1e6


class TestSlowRequests:
    def meter(self) -> RequestMeter:
        return RequestMeter({10, 11, 12}, 0.5)

    def test_a_slow_request_is_logged_with_its_cause(self, caplog):
        meter = self.meter()

        meter.add(request(12), framed(0), 0.4, "192.0.2.7:4000", "its work took long")
        assert caplog.text == ""

        meter.add(request(12), framed(0), 1.25, "192.0.2.7:4000", "its work took long")
        assert "slow request: QUERY_MESSAGE of 192.0.2.7:4000 took 1.25 s: its work took long" in caplog.text

    def test_a_batch_is_logged_once(self, caplog):
        meter = self.meter()
        routes = [Route(10, lambda _connection, _command: b"")] * 25

        meter.add_batch(routes, 0.75, "192.0.2.7:4000")

        assert len(caplog.records) == 1
        assert "SEND_MESSAGE of 192.0.2.7:4000 took 0.75 s: " in caplog.text
        assert "together with 24 other requests of one read event" in caplog.text
        assert counts(meter) == {RequestKey(10, 0): 25}

    def test_one_line_in_ten_seconds_for_a_code(self, caplog, monkeypatch: pytest.MonkeyPatch):
        meter = self.meter()
        now = [100.0]
        monkeypatch.setattr("rocketbroker.transport.request_meter.time.monotonic", lambda: now[0])

        for _ in range(5):
            meter.add(request(12), framed(0), 2.0, "192.0.2.7:4000", "cause")
        meter.add(request(11), framed(0), 2.0, "192.0.2.7:4000", "cause")
        assert len(caplog.records) == 2

        now[0] += 10.0
        meter.add(request(12), framed(0), 2.0, "192.0.2.7:4000", "cause")
        assert caplog.records[-1].getMessage().endswith("; 4 more since the last such line")

    def test_invented_codes_share_one_line(self, caplog):
        meter = self.meter()

        for code in range(9000, 9100):
            meter.add(request(code), framed(3), 2.0, "192.0.2.7:4000", "cause")

        assert len(caplog.records) == 1
        assert "request of an unknown code" in caplog.text

    def test_without_a_limit_nothing_is_slow(self, caplog):
        RequestMeter({10}).add(request(10), framed(0), 1e6, "192.0.2.7:4000", "cause")

        assert caplog.text == ""

    async def test_held_requests_are_not_slow(self, caplog):
        meter = self.meter()
        command = request(11)
        command.is_suspended = True

        meter.add(command, framed(19), 15.0, "192.0.2.7:4000", "cause")

        assert caplog.text == ""

    async def test_the_log_tells_turn_and_work(self, handlers: Handlers, caplog, monkeypatch):
        connection, transport, endpoint = connect(handlers.routes(), limits=SLOW)
        feed(connection, b"".join(frame(LATER, b"", opaque) for opaque in range(5)))
        set_clock_forward(monkeypatch, 2.0)

        handlers.gate.set()
        await until(lambda: len(transport.answers) == 5)

        (record,) = caplog.records
        assert re.search(
            r"took 2\.\d\d s: it waited 2\.\d\d s for its turn and took 0\.\d\d s of work", record.getMessage()
        )
        assert counts(endpoint.meter) == {RequestKey(LATER, 0): 5}

    async def test_the_log_tells_of_a_wait_for_the_disk(self, caplog):
        kept: list[Command] = []
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

        def wait(_connection: object, command: Command) -> asyncio.Future[Command]:
            kept.append(command)
            return future

        connection, transport, _ = connect({FUTURE: Route(FUTURE, wait)}, limits=SLOW)
        feed(connection, frame(FUTURE))
        # As if it had come 2 s ago.
        kept[0].received_at -= 2.0

        future.set_result(response(0))

        await until(lambda: transport.answers)
        assert "its answer waited for the disk, for slaves or for name servers" in caplog.text

"""What a connection lets its peer have under way: open requests, answers that are not taken, silence."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.hot_responses import success_response
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.common.errors import RemotingTooMuchRequestError
from rocketbroker.transport.connection_limits import ConnectionLimits
from tests.support.transports import (
    ECHO,
    FUTURE,
    LATER,
    Handlers,
    connect,
    feed,
    frame,
)
from tests.support.waiting import until


class TestManyOpenRequests:
    async def test_a_few_are_at_work_and_the_others_wait_for_their_turn(self, handlers: Handlers):
        at_work: list[int] = []
        most = 0

        async def work(_connection: Connection, command: Command) -> Command:
            nonlocal most
            at_work.append(command.opaque)
            most = max(most, len(at_work))
            await handlers.gate.wait()
            at_work.remove(command.opaque)
            return response(0)

        connection, transport, endpoint = connect({LATER: Route(LATER, work)})
        feed(connection, b"".join(frame(LATER, b"", number) for number in range(50)))
        await until(lambda: at_work)
        for _ in range(5):
            await asyncio.sleep(0)
        assert 1 < len(at_work) < 10
        handlers.gate.set()
        await until(lambda: len(transport.answers) == 50)

        assert most < 10
        await endpoint.stop("done")

    async def test_none_begins_while_the_peer_is_behind(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        handlers.gate.set()
        connection.pause_writing()
        connection.answer(request(LATER), partial(handlers.routes()[LATER].process, connection, request(LATER)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (connection.is_behind, handlers.seen) == (True, [])

        connection.resume_writing()
        await until(lambda: transport.answers)

        assert (connection.is_behind, len(handlers.seen)) == (False, 1)
        await endpoint.stop("done")

    @pytest.mark.parametrize("code", [LATER, FUTURE])
    async def test_with_too_many_requests_reading_pauses_until_half_are_answered(self, handlers: Handlers, code: int):
        futures: list[asyncio.Future[Command]] = []

        def wait(_connection: Connection, _command: Command) -> asyncio.Future[Command]:
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        async def work(_connection: Connection, _command: Command) -> Command:
            return await wait(_connection, _command)

        connection, transport, endpoint = connect({LATER: Route(LATER, work), FUTURE: Route(FUTURE, wait)})
        feed(connection, b"".join(frame(code, b"", number) for number in range(3000)))
        assert transport.stopped
        for number in range(3000):
            assert connection._open_requests <= 1024
            async with asyncio.timeout(60):
                while len(futures) <= number:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)
            futures[number].set_result(response(0))
        await until(lambda: len(transport.answers) == 3000)

        assert transport.reading
        assert {answer.opaque for answer in transport.answers} == set(range(3000))
        await endpoint.stop("done")

    async def test_those_that_wait_meanwhile_know_for_how_long(self):
        clock = [100.0]
        futures: list[asyncio.Future[Command]] = []
        waited: list[float] = []

        def wait(connection: Connection, _command: Command) -> asyncio.Future[Command]:
            waited.append(connection.waited_s)
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        connection, _, endpoint = connect({FUTURE: Route(FUTURE, wait)})
        connection._loop = cast("asyncio.AbstractEventLoop", SimpleNamespace(time=lambda: clock[0]))
        feed(connection, b"".join(frame(FUTURE, b"", number) for number in range(2000)))
        assert (len(futures), set(waited)) == (1024, {0.0})
        clock[0] += 0.5
        for future in futures[:512]:
            future.set_result(response(0))
        await until(lambda: len(futures) == 1536)
        clock[0] += 0.25
        for future in futures[512:1024]:
            future.set_result(response(0))
        await until(lambda: len(futures) == 2000)
        feed(connection, frame(FUTURE))

        assert waited[1024:1536] == [0.5] * 512
        assert waited[1536:2000] == [0.75] * 464
        assert waited[2000:] == [0.0]
        await endpoint.stop("done")

    async def test_those_whose_turn_never_came_end_with_the_endpoint(self, handlers: Handlers):
        connection, _, endpoint = connect(handlers.routes())
        feed(connection, b"".join(frame(LATER, b"", number) for number in range(50)))
        await asyncio.sleep(0)

        await endpoint.stop("done")

        assert handlers.seen == []
        assert connection._open_requests == 0


class TestSlowPeer:
    async def test_reading_pauses_until_the_peer_takes_its_answers(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        transport.blocked = True
        stream = b"".join(frame(ECHO, b"%d" % number, number) for number in range(500))

        feed(connection, stream)

        assert transport.stopped
        assert 0 < len(handlers.seen) < 100
        # A read that was under way still comes in.
        feed(connection, frame(ECHO, b"late", 500)[:9])
        feed(connection, frame(ECHO, b"late", 500)[9:])
        seen = len(handlers.seen)
        assert seen < 100

        transport.drained()

        assert transport.reading
        assert [body for _, body in handlers.seen] == [b"%d" % number for number in range(500)] + [b"late"]
        assert [answer.opaque for answer in transport.answers] == list(range(501))

    async def test_time_spent_waiting_for_the_peer_is_not_slow(self):
        waited: list[float] = []

        def answer(connection: Connection, _command: Command) -> Command:
            waited.append(connection.waited_s)
            return response(0)

        connection, transport, _ = connect({ECHO: Route(ECHO, answer)})
        transport.blocked = True
        feed(connection, b"".join(frame(ECHO, b"", number) for number in range(500)))
        seen = len(waited)
        transport.drained()

        assert (seen < 100, waited) == (True, [0.0] * 500)

    async def test_it_may_stop_several_times(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        stream = b"".join(frame(ECHO, b"%d" % number, number) for number in range(500)) + frame(ECHO, b"end", 500)[:20]
        transport.blocked = True
        feed(connection, stream)
        rounds = 0
        while not transport.reading:
            transport.waiting = 0
            connection.resume_writing()
            rounds += 1
            assert rounds < 100
        feed(connection, frame(ECHO, b"end", 500)[20:])

        assert rounds > 3
        assert len(handlers.seen) == 501 - (0 if handlers.seen[-1][1] == b"end" else 1)
        assert [body for _, body in handlers.seen[:500]] == [b"%d" % number for number in range(500)]

    async def test_a_client_keeps_being_notified(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), throttles=False)
        transport.blocked = True

        feed(connection, frame(ECHO, b"x" * 50) * 20)

        assert transport.reading
        assert len(handlers.seen) == 20

    async def test_a_connection_lost_while_stopped_forgets_what_waits(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        transport.blocked = True
        feed(connection, frame(ECHO, b"x" * 50) * 500)
        seen = len(handlers.seen)
        connection.connection_lost(None)

        connection.resume_writing()

        assert len(handlers.seen) == seen
        assert endpoint.connections == set()

    @pytest.mark.parametrize("piece", [b"x" * 100_000, [success_response(1), b"x" * 50_000, memoryview(b"y" * 50_000)]])
    async def test_large_answers_to_one_read_are_handed_over_by_their_bytes(self, piece: Any):
        def answer(_connection: Connection, command: Command) -> Any:
            if isinstance(piece, list):
                return piece
            return response(0, None, None, piece)

        connection, transport, endpoint = connect({ECHO: Route(ECHO, answer)})
        batches: list[int] = []
        endpoint.on_batch_end = lambda: batches.append(len(transport.written))
        transport.blocked = True

        feed(connection, frame(ECHO) * 50)

        assert transport.stopped
        assert 256 * 1024 < len(transport.written) < 400_000
        assert batches[0] == 0, "what is answered is readable before"
        transport.drained()
        assert len(transport.written) >= 50 * 100_000


class TestPushes:
    LIMITS = ConnectionLimits(max_push_bytes=10_000)

    async def test_one_that_keeps_up_is_sent_all(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)

        for _ in range(10):
            assert connection.send_oneway(request(FUTURE, None, bytes(5_000)))

        assert len(transport.answers) == 10

    async def test_a_slow_peer_is_sent_a_limited_amount(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        transport.blocked = True
        feed(connection, frame(ECHO, b"x" * 200))
        waiting = transport.waiting

        sent = [connection.send_oneway(request(FUTURE, None, bytes(900))) for _ in range(100)]

        assert (sent[0], sent[-1], transport.closed) == (True, False, False)
        assert 9_000 < transport.waiting - waiting <= 10_000
        with pytest.raises(RemotingTooMuchRequestError, match=r"the limit of 10,000 \(maxPushBytesPerConnection\)"):
            await connection.invoke(request(FUTURE, None, bytes(900)), 5)
        assert not connection._outgoing._pending

        transport.drained()

        assert connection.send_oneway(request(FUTURE, None, bytes(900)))

    async def test_a_closed_peer_is_sent_nothing(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        connection.close("done")

        assert not connection.send_oneway(request(FUTURE))
        assert not transport.written


class TestIdle:
    LIMITS = ConnectionLimits(max_idle_s=10)

    async def test_one_that_sends_nothing_is_closed(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        started = connection.last_read
        connection.check(started + 9.9)
        assert not transport.closed

        connection.check(started + 10.1)

        assert (transport.closed, transport.aborted) == (True, False)

    async def test_one_that_takes_nothing_is_dropped_also_when_it_sends(self, handlers: Handlers, caplog):
        caplog.set_level("INFO")
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        transport.blocked = True
        feed(connection, frame(ECHO))
        started = connection.last_read
        for after in range(10):
            connection.last_read = started + after
            connection.check(started + after)
        assert not transport.closed

        connection.check(started + 10.1)

        assert transport.aborted
        assert f"took none of the {transport.waiting} bytes" in caplog.text
        assert "(serverChannelMaxIdleTimeSeconds)" in caplog.text

    async def test_one_that_takes_a_little_at_a_time_stays(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        now = connection.last_read
        transport.blocked = True
        feed(connection, frame(ECHO, b"x" * 1000))
        assert connection.is_behind
        for _ in range(100):
            transport.waiting -= 1
            now += 9
            connection.check(now)
        assert not transport.closed

        transport.drained()
        connection._heard_at = now
        connection.check(now + 9)
        assert not transport.closed
        connection.check(now + 11)
        assert (transport.closed, transport.aborted) == (True, False)

    async def test_one_that_waits_for_its_answers_stays(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes(), limits=self.LIMITS)
        feed(connection, b"".join(frame(LATER, b"", number) for number in range(1100)))
        assert transport.stopped

        connection.check(connection.last_read + 100)

        assert not transport.closed
        handlers.gate.set()
        await until(lambda: len(transport.answers) == 1100)
        await endpoint.stop("done")

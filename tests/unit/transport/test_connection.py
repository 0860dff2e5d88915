"""Tests of RemotingConnection: the end of a batch, slow and idle peers."""

import asyncio
import errno
from typing import Any

import pytest

from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.hot_responses import success_response
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.transport import frame_reader
from rocketbroker.transport.endpoint import EndpointHooks
from rocketbroker.transport.peer_limits import SHARED_SIZE, ConnectionLimits
from tests.support.transports import (
    ECHO,
    LATER,
    FakeTransport,
    Handlers,
    Runs,
    attach,
    connect,
    feed,
    frame,
    frames,
    set_clock_forward,
)
from tests.support.waiting import turns, until


class TestBatchEnd:
    @pytest.mark.proves("The steps of a message", "3. queue and keys")
    async def test_it_comes_after_the_last_frame_and_before_the_answers(self, handlers: Handlers):
        seen: list[tuple[int, int]] = []
        connection, transport, endpoint = connect(handlers.routes())
        endpoint.hooks = EndpointHooks(lambda: seen.append((len(handlers.seen), transport.writes)))

        feed(connection, frame(ECHO) * 3)
        feed(connection, frame(ECHO)[:5])

        assert seen[0] == (3, 0)

    async def test_it_comes_before_each_part_of_many_answers(self, handlers: Handlers):
        ended: list[int] = []
        connection, transport, endpoint = connect(handlers.routes())
        endpoint.hooks = EndpointHooks(lambda: ended.append(transport.writes))

        feed(connection, frame(ECHO) * 300)

        assert transport.writes > 1
        assert ended == list(range(len(ended))), "each write has one end of a batch before it"
        assert len(ended) == transport.writes

    async def test_an_error_that_stays_is_logged_once_until_it_passes_or_changes(self, handlers: Handlers, caplog):
        errors = iter(["no room", "no room", "", "no room", "no disk", "no disk"])

        def end() -> None:
            if error := next(errors):
                raise OSError(error)

        connection, _, _ = connect(handlers.routes(), on_batch_end=end)

        for _ in range(6):
            feed(connection, frame(ECHO))

        logged = [record.exc_info[1].args for record in caplog.records if record.exc_info]
        assert logged == [("no room",), ("no room",), ("no disk",)]

    async def test_its_error_is_logged_and_the_answers_go_out(self, handlers: Handlers, caplog):
        def fail() -> None:
            raise OSError(errno.ENOSPC, "no room")

        connection, transport, _ = connect(handlers.routes(), on_batch_end=fail)

        feed(connection, frame(ECHO, b"", 7))

        assert [answer.opaque for answer in transport.answers] == [7]
        assert "no room" in caplog.text


class TestFilledBuffer:
    async def test_a_read_that_fills_the_buffer_ends_the_turn(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        requests = frame(ECHO, b"", 1) * (SHARED_SIZE // len(frame(ECHO, b"", 1)) + 1)

        feed(connection, requests[:SHARED_SIZE])

        assert [transport.reading] == [False], "more is probably there"
        await turns()
        assert transport.reading
        feed(connection, requests[SHARED_SIZE:])
        assert len(handlers.seen) == requests.count(frame(ECHO, b"", 1))
        assert transport.reading

    async def test_a_large_frame_has_no_turn_before_it_is_complete(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        large = frame(ECHO, bytes(4 * SHARED_SIZE))

        feed(connection, large[:-1])

        assert transport.reading
        feed(connection, large[-1:])
        assert len(handlers.seen) == 1


class TestTurns:
    """Requests of one read event that take longer than a turn; here each takes a whole one."""

    @pytest.fixture(autouse=True)
    def _short_turns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(frame_reader, "_TURN_S", 0.0)

    async def test_each_turn_serves_one_connection_in_order(self, handlers: Handlers):
        first, transport, endpoint = connect(handlers.routes())
        second, other = attach(endpoint)
        for connection, name in ((first, b"a"), (second, b"b")):
            feed(connection, b"".join(frame(ECHO, name + b"%d" % number, number) for number in range(4)))
        assert {transport.reading, other.reading} == {False}
        third, _ = attach(endpoint)
        turns = [len(handlers.seen)]

        feed(third, frame(ECHO, b"c"))
        while not (transport.reading and other.reading):
            await asyncio.sleep(0)
            turns.append(len(handlers.seen))

        assert [body for _, body in handlers.seen] == [b"a0", b"b0", b"c", b"a1", b"b1", b"a2", b"b2", b"a3", b"b3"]
        assert turns == [2, *range(4, 10)]
        for each in (transport, other):
            assert [answer.opaque for answer in each.answers] == list(range(4))

    async def test_what_arrives_meanwhile_comes_after_it(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        feed(connection, frame(ECHO, b"0", 0) * 2 + frame(ECHO, b"1", 1)[:9])
        # A read that was under way.
        feed(connection, frame(ECHO, b"1", 1)[9:] + frame(ECHO, b"2", 2))

        await until(lambda: transport.reading)

        assert [answer.opaque for answer in transport.answers] == [0, 0, 1, 2]

    async def test_a_run_is_not_divided(self):
        runs = Runs()
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        await until(lambda: transport.reading)

        feed(connection, frames(150, 10))
        await until(lambda: transport.reading)

        assert (runs.sizes, runs.alone) == ([64, 64, 22], 9)
        assert [answer.opaque for answer in transport.answers] == list(range(1, 160))

    async def test_its_time_for_other_connections_does_not_count_as_waited(self):
        waited: list[float] = []

        def answer(connection: Connection, _command: Command) -> Command:
            waited.append(connection.waited_s)
            return response(0)

        connection, transport, _ = connect({ECHO: Route(ECHO, answer)})
        feed(connection, frame(ECHO) * 3)
        await until(lambda: transport.reading)

        assert waited == [0.0] * 3

    async def test_a_peer_that_takes_no_answers_gives_up_its_turn(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        transport.blocked = True
        feed(connection, frame(ECHO, b"x" * 200) * 3)
        await turns()
        assert (len(handlers.seen), transport.reading) == (1, False)

        transport.drained()
        await until(lambda: transport.reading)

        assert len(handlers.seen) == 3

    async def test_a_lost_connection_has_no_turn(self, handlers: Handlers):
        lost, _, endpoint = connect(handlers.routes())
        other, transport = attach(endpoint)
        for connection in (lost, other):
            feed(connection, frame(ECHO, b"lost" if connection is lost else b"") * 3)

        lost.connection_lost(None)
        await until(lambda: transport.reading)

        assert [body for _, body in handlers.seen].count(b"lost") == 1

    async def test_a_client_has_all_its_time(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), throttles=False)

        feed(connection, frame(ECHO) * 3)

        assert (len(handlers.seen), transport.reading) == (3, True)


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
        endpoint.hooks = EndpointHooks(lambda: batches.append(len(transport.written)))
        transport.blocked = True

        feed(connection, frame(ECHO) * 50)

        assert transport.stopped
        assert 256 * 1024 < len(transport.written) < 400_000
        assert batches[0] == 0, "what is answered is readable before"
        transport.drained()
        assert len(transport.written) >= 50 * 100_000


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

    async def test_one_that_takes_a_little_at_a_time_stays(self, handlers: Handlers, monkeypatch):
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

        set_clock_forward(monkeypatch, now - asyncio.get_running_loop().time())
        transport.drained()
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


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("192.0.2.7", 10911), "c000020700002a9f"),
        (("::ffff:192.0.2.7", 10911, 0, 0), "c000020700002a9f"),
        (("2001:db8::1", 10911, 0, 0), "20010db800000000000000000000000100002a9f"),
        (("fe80::1%lo", 1, 0, 1), "fe80000000000000000000000000000100000001"),
    ],
)
async def test_a_peer_as_records_hold_it(address, expected: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FakeTransport, "get_extra_info", lambda _, name: address if name == "peername" else None)

    assert connect({})[0].remote_host.hex() == expected


async def test_a_connection_that_is_to_end_handles_no_further_request_and_answers_those_before(handlers: Handlers):
    connection, transport, _ = connect(handlers.routes())
    handle = handlers.routes()[ECHO].process

    def end(peer: Connection, command: Command) -> Any:
        if command.opaque == 2:
            peer.close_after_batch("enough")
        return handle(peer, command)

    connection, transport, _ = connect({**handlers.routes(), ECHO: Route(ECHO, end)})
    feed(connection, frame(ECHO, b"", 1) + frame(ECHO, b"", 2) + frame(ECHO, b"", 3))
    await turns(3)

    assert [answer.opaque for answer in transport.answers] == [1, 2]
    assert transport.is_closing()

"""Memory that connections hold between events: incomplete frames, requests and answers that wait."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.codec.remoting.handler import HELD, Connection, Held, Route
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.transport.peer_limits import SHARED_SIZE, ConnectionLimits, ReceiveBuffer
from tests.support.transports import ECHO, FUTURE, LATER, Handlers, attach, connect, feed, frame, set_clock_forward
from tests.support.waiting import turns, until


def make() -> ReceiveBuffer:
    return ReceiveBuffer(memoryview(bytearray(SHARED_SIZE)))


def read(buffer: ReceiveBuffer, data: bytes) -> memoryview:
    room = buffer.room()
    assert len(room) >= len(data)
    room[: len(data)] = data
    return buffer.received(len(data))


def test_what_is_consumed_at_once_costs_no_memory():
    buffer = make()

    assert bytes(read(buffer, b"abc")) == b"abc"
    buffer.clear()

    assert buffer.held == 0
    assert len(buffer.room()) == SHARED_SIZE


def test_kept_bytes_precede_those_read_next():
    buffer = make()
    data = read(buffer, b"abcdef")
    buffer.keep(data[4:], 10)

    assert bytes(read(buffer, b"ghij")) == b"efghij"


def test_connections_that_share_a_buffer_keep_their_rests_apart():
    shared = memoryview(bytearray(SHARED_SIZE))
    one, two = ReceiveBuffer(shared), ReceiveBuffer(shared)
    one.keep(read(one, b"one"), 8)
    two.keep(read(two, b"two"), 8)

    assert bytes(read(one, b"-1")) == b"one-1"
    one.clear()
    assert bytes(read(two, b"-2")) == b"two-2"


@pytest.mark.parametrize("size", [SHARED_SIZE - 1, SHARED_SIZE, SHARED_SIZE + 1, 3 * SHARED_SIZE + 7, 15 << 20])
@pytest.mark.parametrize("step", [SHARED_SIZE, 1000 * 7 + 1])
def test_a_frame_of_any_size_comes_together(size: int, step: int):
    if size // step > 1000:
        step = 50_021
    buffer = make()
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    got = 0
    while True:
        count = min(step, size - got, len(buffer.room()))
        whole = read(buffer, data[got : got + count])
        got += count
        assert len(whole) == got
        if got == size:
            break
        buffer.keep(whole, size)

    assert bytes(whole) == data
    buffer.clear()
    assert buffer.held == 0


@pytest.mark.parametrize("came", [8, 1000, 100_000, SHARED_SIZE, SHARED_SIZE * 4])
def test_memory_grows_with_what_came_and_not_with_what_is_claimed(came: int):
    buffer = make()
    got = 0
    while got < came:
        count = min(came - got, len(buffer.room()))
        whole = read(buffer, bytes(count))
        got += count
        buffer.keep(whole, 15 << 20)

    assert buffer.held <= 2 * came


def test_the_last_part_of_a_large_frame_never_reads_past_it():
    buffer = make()
    size = SHARED_SIZE + 1000
    buffer.keep(read(buffer, bytes(SHARED_SIZE)), size)

    assert len(buffer.room()) == 1000


MIB = 1 << 20
LIMITS = ConnectionLimits(max_held_bytes=MIB)


def half_frame(came: int) -> bytes:
    """The first bytes of a frame of 15 MiB."""
    return frame(ECHO, bytes(15 * MIB))[:came]


class TestHalfFrames:
    async def test_those_of_all_connections_are_bounded(self, handlers: Handlers, caplog):
        _, _, endpoint = connect(handlers.routes(), limits=LIMITS)
        peers = [attach(endpoint) for _ in range(20)]
        for connection, _ in peers:
            feed(connection, half_frame(200_000))
            assert endpoint.held_bytes <= MIB

        dropped = [connection for connection, transport in peers if transport.aborted]
        assert 10 < len(dropped) < 20
        assert {connection.held_bytes() for connection in dropped} == {0}
        assert "(maxHeldBytes)" in caplog.text
        connection, transport = attach(endpoint)
        feed(connection, frame(ECHO, b"served", 9))
        assert transport.answers[0].body == b"served"

    async def test_the_one_without_progress_is_dropped(self, handlers: Handlers):
        _, _, endpoint = connect(handlers.routes(), limits=LIMITS)
        (stale, stale_transport), (busy, busy_transport) = attach(endpoint), attach(endpoint)
        feed(stale, half_frame(200_000))
        stale.memory.since -= 10

        for _ in range(5):
            feed(busy, frame(ECHO, bytes(900_000)))
            await turns()

        assert (stale_transport.aborted, busy_transport.aborted) == (True, False)
        assert len(busy_transport.answers) == 5

    async def test_a_whole_frame_holds_nothing(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes(), limits=LIMITS)
        whole = frame(ECHO, bytes(700_000))
        feed(connection, whole[:500_000])
        assert 500_000 <= endpoint.held_bytes <= 700_100

        feed(connection, whole[500_000:])

        assert (endpoint.held_bytes, connection.held_bytes(), len(transport.answers)) == (0, 0, 1)

    async def test_one_that_is_lost_holds_nothing(self, handlers: Handlers):
        connection, _, endpoint = connect(handlers.routes(), limits=LIMITS)
        feed(connection, half_frame(500_000))

        connection.connection_lost(None)

        assert (endpoint.held_bytes, connection.held_bytes()) == (0, 0)


class TestFrameTimeout:
    LIMITS = ConnectionLimits(frame_timeout_s=60)

    @pytest.mark.parametrize(("came", "seconds"), [(5, 60), (100, 60), (64 * 1024 * 10, 70)])
    async def test_a_frame_that_is_not_whole_in_time_ends_the_connection(
        self, handlers: Handlers, caplog, came: int, seconds: int
    ):
        connection, transport, endpoint = connect(handlers.routes(), limits=self.LIMITS)
        feed(connection, half_frame(came))
        started = connection.last_read
        for after in range(1, seconds, 3):
            connection.last_read = started + after
            connection.check(started + after)
        assert not transport.closed

        connection.check(started + seconds + 1)

        assert transport.aborted
        assert "(frameTimeoutSeconds)" in caplog.text
        assert endpoint.held_bytes == 0

    async def test_an_occasional_byte_does_not_restart_the_timeout(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        feed(connection, half_frame(300_000))
        began = connection.last_read
        await asyncio.sleep(0.01)
        feed(connection, b"xyz", [1, 2])

        connection.check(began + 66)
        assert transport.aborted

    async def test_each_frame_has_its_own(self, handlers: Handlers, monkeypatch):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        feed(connection, frame(ECHO)[:-1])
        set_clock_forward(monkeypatch, 59)
        feed(connection, b"}" + frame(ECHO)[:-1])

        connection.check(connection.last_read + 59)

        assert not transport.closed
        assert len(transport.answers) == 1

    async def test_no_time_counts_while_reading_is_paused(self, handlers: Handlers, monkeypatch):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        feed(connection, frame(ECHO)[:-1])
        began = connection.last_read
        transport.blocked = True
        connection.send_oneway(request(ECHO, None, bytes(200)))
        connection.flush()
        assert transport.stopped
        transport.waiting -= 1  # the peer takes its answers, though slowly
        connection.check(began + 70)
        assert not transport.aborted

        monkeypatch.setattr(connection, "_loop", SimpleNamespace(time=lambda: began + 100))
        transport.drained()
        connection.check(began + 159)
        assert not transport.aborted
        connection.check(began + 161)

        assert transport.aborted

    async def test_bytes_read_before_reading_resumes_are_not_late(self, handlers: Handlers, monkeypatch):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        transport.blocked = True
        # Those after the first 65 wait unread until the peer takes the answers to these.
        feed(connection, frame(ECHO, bytes(200)) * 100 + frame(ECHO)[:-1])
        read = connection.last_read
        assert transport.stopped

        monkeypatch.setattr(connection, "_loop", SimpleNamespace(time=lambda: read + 100))
        transport.drained()
        connection.check(read + 159)

        assert (len(transport.answers), transport.aborted) == (100, False)

    async def test_silence_between_frames_is_no_frame(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        feed(connection, frame(ECHO))

        connection.check(connection.last_read + 100)

        assert not transport.closed


class TestWaitingRequests:
    async def test_their_bodies_stop_the_reading(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        for number in range(100):
            if transport.stopped:
                break
            feed(connection, frame(LATER, bytes(MIB), number))
            await turns()

        assert transport.stopped
        assert 4 * MIB < endpoint.held_bytes < 7 * MIB
        handlers.gate.set()
        await until(lambda: transport.reading)
        await endpoint.stop("done")

    async def test_those_that_have_not_begun_end_with_their_connection(self, handlers: Handlers):
        connection, _, endpoint = connect(handlers.routes())
        feed(connection, b"".join(frame(LATER, bytes(10_000), number) for number in range(100)))
        await asyncio.sleep(0)
        assert endpoint.held_bytes == 100 * 10_000

        connection.connection_lost(None)

        assert endpoint.held_bytes == 4 * 10_000, "what has begun goes on"
        handlers.gate.set()
        await until(lambda: not endpoint.held_bytes)
        assert (len(handlers.seen), connection.open_requests) == (4, 0)

    async def test_bodies_at_work_out_of_turn_count_and_stop_the_reading(self, handlers: Handlers):
        async def work(body: bytes) -> Command:
            await handlers.gate.wait()
            return response(0, None, None, body[:1])

        def begin(_connection: Connection, command: Command) -> Any:
            return work(bytes(command.body))

        connection, transport, endpoint = connect({ECHO: Route(ECHO, begin, takes_large_bodies=True)})
        for number in range(100):
            if transport.stopped:
                break
            feed(connection, frame(ECHO, bytes(MIB), number))
            await turns()

        assert transport.stopped
        assert 4 * MIB < endpoint.held_bytes < 7 * MIB
        handlers.gate.set()
        await until(lambda: transport.reading)
        await until(lambda: not endpoint.held_bytes)
        assert connection.open_requests == 0
        await endpoint.stop("done")

    async def test_a_request_that_is_kept_keeps_no_receive_buffer(self, handlers: Handlers):
        kept: list[Command] = []

        def wait(_connection: Connection, command: Command) -> asyncio.Future[Any]:
            kept.append(command)
            return asyncio.get_running_loop().create_future()

        def hold(_connection: Connection, command: Command) -> Held:
            kept.append(command)
            return HELD

        connection, _, endpoint = connect(
            {
                FUTURE: Route(FUTURE, wait, takes_large_bodies=True),
                ECHO: Route(ECHO, hold, takes_large_bodies=True),
            }
        )
        feed(connection, frame(FUTURE, bytes(2 * MIB)) + frame(ECHO, bytes(2 * MIB)))
        await turns()

        assert [len(command.body) for command in kept] == [0, 0]
        assert endpoint.held_bytes == 0

    async def test_unread_bytes_of_a_paused_connection_count(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        transport.blocked = True
        feed(connection, frame(ECHO, b"x" * 200) + frame(ECHO, bytes(100_000)) * 3)

        assert endpoint.held_bytes > 2 * 100_000
        transport.drained()
        await asyncio.sleep(0)
        assert endpoint.held_bytes == 0


class TestAnswers:
    async def test_those_that_wait_count(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        transport.blocked = True
        feed(connection, frame(ECHO, b"x" * 50_000))
        assert 50_000 < endpoint.held_bytes < 51_000

        transport.drained()

        assert endpoint.held_bytes == 0

    async def test_few_bytes_are_seen_at_the_next_look(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        transport.waiting = 90
        connection.check(connection.last_read)
        assert endpoint.held_bytes == 90

        transport.waiting = 0
        connection.check(connection.last_read)

        assert endpoint.held_bytes == 0

    async def test_a_peer_that_takes_nothing_is_the_one_to_go(self, handlers: Handlers):
        def large(_connection: Connection, _command: Command) -> Command:
            return response(0, None, None, bytes(600_000))

        _, _, endpoint = connect({ECHO: Route(ECHO, large)}, limits=LIMITS)
        (first, first_transport), (second, second_transport) = attach(endpoint), attach(endpoint)
        first_transport.blocked = second_transport.blocked = True
        feed(first, frame(ECHO))
        first.memory.since -= 5

        feed(second, frame(ECHO))

        assert (first_transport.aborted, second_transport.aborted) == (True, False)
        assert endpoint.held_bytes < MIB

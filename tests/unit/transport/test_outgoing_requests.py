"""Tests of OutgoingRequests: answers find their requests, and a slow peer is sent a limited amount."""

import asyncio

import pytest

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.remoting_command import request, response
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError, RemotingTooMuchRequestError
from rocketbroker.transport.connection import RemotingConnection
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.frame_writer import SharedWriter
from rocketbroker.transport.peer_limits import ConnectionLimits
from tests.support.transports import ECHO, FUTURE, TYPED, FakeTransport, Handlers, connect, feed, frame
from tests.support.waiting import until


class TestRequests:
    async def test_an_answer_finds_its_request_even_when_its_code_is_served_here(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        tasks = [asyncio.create_task(connection.invoke(request(39), 10)) for _ in range(2)]
        await until(lambda: len(transport.answers) == 2)
        first, second = (sent.opaque for sent in transport.answers)
        assert first != second
        for code, opaque in ((TYPED, second), (ECHO, first)):
            answer = response(code, None, None, b"body %d" % opaque)
            answer.opaque = opaque
            feed(connection, encode_frame(answer))

        answers = await asyncio.gather(*tasks)

        assert [(answer.code, answer.body) for answer in answers] == [
            (ECHO, b"body %d" % first),
            (TYPED, b"body %d" % second),
        ]
        assert handlers.seen == []

    async def test_no_answer_in_time(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        with pytest.raises(RemotingTimeoutError, match=r"no answer from 192.0.2.7:4000 to request code 39 within"):
            await connection.invoke(request(39), 0.01)

        late = response(0)
        late.opaque = transport.answers[0].opaque
        feed(connection, encode_frame(late))
        assert connection.awaited_answers == 0

    async def test_a_lost_connection_ends_all_that_wait(self, handlers: Handlers):
        lost: list[object] = []
        connection, transport, endpoint = connect(handlers.routes(), on_close=lost.append)
        tasks = [asyncio.create_task(connection.invoke(request(39), 10)) for _ in range(3)]
        await until(lambda: len(transport.answers) == 3)

        connection.connection_lost(ConnectionResetError())

        for task in tasks:
            with pytest.raises(RemotingSendError, match=r"the connection to 192.0.2.7:4000 was lost"):
                await task
        with pytest.raises(RemotingSendError, match="is closed"):
            await connection.invoke(request(39), 10)
        assert lost == [connection]
        assert endpoint.connections == set()

    async def test_oneway_requests_say_so(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        connection.send_oneway(request(40, {"a": "b"}))

        (sent,) = transport.answers
        assert (sent.code, sent.is_oneway, sent.is_response, sent.header) == (40, True, False, {"a": "b"})

    async def test_opaques_stay_within_an_int(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        endpoint.opaque = iter([2**31 - 1, 2**31, 2**31 + 1])  # type: ignore[assignment]

        for _ in range(3):
            connection.send_oneway(request(40))

        assert all(0 <= sent.opaque < 2**31 for sent in transport.answers)


class TestDeadlines:
    """One timer serves all requests of a connection."""

    async def test_a_short_limit_ends_before_a_long_one(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        long = asyncio.create_task(connection.invoke(request(39), 600))
        await until(lambda: transport.answers)

        async with asyncio.timeout(60):
            with pytest.raises(RemotingTimeoutError, match=r"within 0.01 s"):
                await connection.invoke(request(40), 0.01)

        assert not long.done()
        connection.connection_lost(None)
        await asyncio.wait([long])
        assert isinstance(long.exception(), RemotingSendError)

    async def test_each_of_several_limits_ends_its_request(self, handlers: Handlers):
        connection, _, _ = connect(handlers.routes())
        limits = (0.01, 0.02, 0.03)

        async with asyncio.timeout(60):
            ends = await asyncio.gather(
                *(connection.invoke(request(39), limit) for limit in limits), return_exceptions=True
            )

        assert [isinstance(end, RemotingTimeoutError) for end in ends] == [True] * 3
        assert [str(end).rpartition(" within ")[2] for end in ends] == ["0.01 s", "0.02 s", "0.03 s"]


async def test_a_connection_that_is_lost_ends_requests_that_have_not_left(handlers: Handlers):
    connection = RemotingConnection(Endpoint("test", handlers.routes()), SharedWriter(asyncio.get_running_loop()))
    transport = FakeTransport()
    connection.connection_made(transport)
    tasks = [asyncio.create_task(connection.invoke(request(39), 600)) for _ in range(3)]
    asyncio.get_running_loop().call_soon(connection.connection_lost, None)

    async with asyncio.timeout(60):
        ends = await asyncio.gather(*tasks, return_exceptions=True)

    assert [isinstance(end, RemotingSendError) for end in ends] == [True] * 3
    assert (bytes(transport.written), connection.awaited_answers) == (b"", 0)


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
        assert connection.awaited_answers == 0

        transport.drained()

        assert connection.send_oneway(request(FUTURE, None, bytes(900)))

    async def test_a_closed_peer_is_sent_nothing(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        connection.close("done")

        assert not connection.send_oneway(request(FUTURE))
        assert not transport.written

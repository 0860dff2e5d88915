"""What a connection answers and asks: at once, later, with errors, and after it was lost."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any, cast

import pytest

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Answer, Connection, InTurn, Route
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.common.errors import BrokerResponseError, RemotingSendError, RemotingTimeoutError
from tests.support.transports import (
    ECHO,
    FAILING,
    FUTURE,
    HOLDING,
    LATER,
    REFUSING,
    TYPED,
    Handlers,
    connect,
    feed,
    frame,
)
from tests.support.waiting import until


class TestAnswers:
    async def test_an_unknown_code(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(9999, b"", 3) + frame(ECHO, b"", 4))

        unknown, known = transport.answers
        assert (unknown.code, unknown.remark, unknown.opaque) == (3, " request type 9999 not supported", 3)
        assert known.code == 0

    @pytest.mark.parametrize("serialize_type", [0, 1])
    async def test_a_missing_field(self, handlers: Handlers, serialize_type: int):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(TYPED, b"", 3, {"topic": "T"}, serialize_type=serialize_type))

        (answer,) = transport.answers
        assert (answer.code, answer.opaque) == (1, 3)
        assert "<queueId> is missing" in (answer.remark or "")
        assert not transport.closed

    async def test_a_missing_field_of_a_oneway_request(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(TYPED, b"", 3, {"topic": "T"}, oneway=True) + frame(9999, oneway=True))

        assert transport.answers == []

    async def test_errors_of_handlers(self, handlers: Handlers, caplog):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(FAILING, b"", 1) + frame(REFUSING, b"", 2) + frame(ECHO, b"", 3))

        failed, refused, fine = transport.answers
        assert (failed.code, failed.remark) == (1, "KeyError: 'what was missing'")
        assert (refused.code, refused.remark) == (17, "no such topic")
        assert fine.code == 0
        assert "request code 50 failed" in caplog.text

    async def test_a_held_request_is_answered_later(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        command = request(HOLDING)
        command.opaque = 8

        feed(connection, frame(HOLDING, b"kept", 8))
        assert (transport.writes, handlers.seen) == (0, [(HOLDING, b"kept")])

        connection.answer(command, lambda: response(0, "later"))
        await until(lambda: transport.answers)
        (answer,) = transport.answers
        assert (answer.opaque, answer.remark, answer.is_response) == (8, "later", True)

    async def test_held_requests_that_fail_are_answered_and_no_other_suffers(self, handlers: Handlers, caplog):
        connection, transport, _ = connect(handlers.routes())

        def fail() -> Answer:
            raise KeyError("queue")

        def refuse() -> Answer:
            raise BrokerResponseError(17, "no such topic")

        for make in (fail, refuse, lambda: response(0)):
            connection.answer(request(HOLDING), make)
        await until(lambda: transport.answers)

        assert transport.writes == 1
        assert [answer.code for answer in transport.answers] == [1, 17, 0]
        assert "request code 54 failed" in caplog.text

    @pytest.mark.parametrize("in_turn", [False, True])
    async def test_a_held_request_of_a_peer_that_is_behind_is_answered_in_its_turn(self, in_turn: bool):
        connection, transport, endpoint = connect({})
        made: list[Answer] = []

        async def read() -> Command:
            return response(0)

        def make() -> Answer:
            made.append(InTurn(read()) if in_turn else response(0))
            return made[0]

        connection.pause_writing()
        connection.answer(request(HOLDING), make)
        await asyncio.sleep(0)
        assert made == []

        connection.resume_writing()
        await until(lambda: transport.answers)
        assert [answer.code for answer in transport.answers] == [0]
        await endpoint.stop("done")

    async def test_a_coroutine_answers_when_it_is_done_and_has_its_own_body(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())

        feed(connection, frame(LATER, b"mine", 1) + frame(ECHO, b"at once", 2))
        feed(connection, frame(ECHO, b"x" * 4, 3))
        assert [answer.opaque for answer in transport.answers] == [2, 3]
        handlers.gate.set()
        await until(lambda: len(transport.answers) == 3)

        assert (transport.answers[2].opaque, bytes(transport.answers[2].body)) == (1, b"mine")
        await endpoint.tasks.stop()

    async def test_a_future_answers_when_it_is_done(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        feed(connection, frame(FUTURE, b"", 1))
        assert handlers.future
        handlers.future.set_exception(OSError(errno.EIO, "disk"))
        await until(lambda: transport.answers)

        (answer,) = transport.answers
        assert (answer.code, answer.opaque) == (1, 1)
        assert "disk" in (answer.remark or "")
        await endpoint.tasks.stop()

    async def test_requests_that_waited_for_one_thing_are_answered_by_one_write(self):
        gate = asyncio.get_running_loop().create_future()

        def wait(_connection: Connection, _command: Command) -> asyncio.Future[Command]:
            future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            gate.add_done_callback(lambda _: future.set_result(response(0)))
            return future

        connection, transport, _ = connect({FUTURE: Route(FUTURE, wait)})
        feed(connection, b"".join(frame(FUTURE, b"", number) for number in range(20)))
        assert transport.writes == 0

        gate.set_result(None)
        await until(lambda: transport.answers)

        assert transport.writes == 1
        assert [answer.opaque for answer in transport.answers] == list(range(20))

    async def test_a_coroutine_for_a_oneway_request_is_not_answered(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        feed(connection, frame(LATER, b"mine", 1, oneway=True))
        handlers.gate.set()
        await until(lambda: handlers.seen)
        await endpoint.tasks.stop()

        assert transport.answers == []

    async def test_an_answer_after_the_connection_was_lost_goes_nowhere(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        feed(connection, frame(LATER))
        connection.connection_lost(None)
        handlers.gate.set()
        await until(lambda: handlers.seen)
        await endpoint.tasks.stop()

        assert transport.writes == 0
        assert not connection.is_open


async def test_a_remark_does_not_repeat_a_name_of_a_megabyte():
    def refuse(connection: Connection, command: Command) -> Command:
        return response(17, "x" * 1_000_000)

    connection, transport, _ = connect({ECHO: Route(ECHO, refuse)})

    feed(connection, frame(ECHO))

    assert [len(answer.remark or "") for answer in transport.answers] == [4096 + len("... (1000000 characters)")]


class TestAnswersThatCannotBeEncoded:
    BAD: tuple[Callable[[], Any], ...] = (
        lambda: response(0, None, 7),
        lambda: response(0, "remark \ud800"),
        lambda: response(0, None, None, cast("bytes", "no bytes")),
        lambda: 7,
    )

    @pytest.mark.parametrize("make", BAD, ids=["header", "remark", "body", "type"])
    async def test_are_answered_and_the_connection_stays_open(self, handlers: Handlers, make: Callable[[], Any]):
        async def later(_connection: Connection, _command: Command) -> Any:
            return make()

        routes = handlers.routes() | {60: Route(60, lambda *_: make()), 61: Route(61, later)}
        connection, transport, endpoint = connect(routes)

        feed(connection, frame(60, b"", 1) + frame(61, b"", 2) + frame(ECHO, b"", 3))
        await until(lambda: len(transport.answers) == 3)

        assert {answer.opaque: answer.code for answer in transport.answers} == {1: 1, 2: 1, 3: 0}
        assert all(answer.is_response for answer in transport.answers)
        assert not transport.closed
        await endpoint.stop("done")


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
        assert connection._outgoing._pending == {}

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

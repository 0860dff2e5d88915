"""Tests of Responder: answers at once, later and in turn, errors, and the limit of pending requests."""

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from rocketbroker.codec.remoting.handler import Answer, Connection, InTurn, Route
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
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
    set_clock_forward,
)
from tests.support.waiting import turns, until


class TestAnswers:
    async def test_an_unknown_code(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(9999, b"", 3) + frame(ECHO, b"", 4))

        unknown, known = transport.answers
        assert (unknown.code, unknown.remark, unknown.opaque) == (3, " request type 9999 not supported", 3)
        assert known.code == 0

    async def test_a_code_that_only_newer_servers_have(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(200070, b"", 3))

        (answer,) = transport.answers
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 200070 not supported: this server has no POP_LITE_MESSAGE"

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
        connection.flush()

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
        assert transport.writes == 0
        connection.flush()

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
        await turns()
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
        await turns()
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
            assert connection.open_requests <= 1024
            async with asyncio.timeout(60):
                while len(futures) <= number:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)
            futures[number].set_result(response(0))
        await until(lambda: len(transport.answers) == 3000)

        assert transport.reading
        assert {answer.opaque for answer in transport.answers} == set(range(3000))
        await endpoint.stop("done")

    async def test_those_that_wait_meanwhile_know_for_how_long(self, monkeypatch):
        futures: list[asyncio.Future[Command]] = []
        waited: list[float] = []

        def wait(connection: Connection, _command: Command) -> asyncio.Future[Command]:
            waited.append(connection.waited_s)
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        connection, _, endpoint = connect({FUTURE: Route(FUTURE, wait)})
        feed(connection, b"".join(frame(FUTURE, b"", number) for number in range(2000)))
        assert (len(futures), set(waited)) == (1024, {0.0})
        set_clock_forward(monkeypatch, 500)
        for future in futures[:512]:
            future.set_result(response(0))
        await until(lambda: len(futures) == 1536)
        set_clock_forward(monkeypatch, 250)
        for future in futures[512:1024]:
            future.set_result(response(0))
        await until(lambda: len(futures) == 2000)
        feed(connection, frame(FUTURE))

        assert waited[1024:1536] == pytest.approx([500] * 512, abs=60)
        assert waited[1536:2000] == pytest.approx([750] * 464, abs=60)
        assert waited[2000:] == [0.0]
        await endpoint.stop("done")

    async def test_those_whose_turn_never_came_end_with_the_endpoint(self, handlers: Handlers):
        connection, _, endpoint = connect(handlers.routes())
        feed(connection, b"".join(frame(LATER, b"", number) for number in range(50)))
        await asyncio.sleep(0)

        await endpoint.stop("done")

        assert handlers.seen == []
        assert connection.open_requests == 0

    async def test_a_future_whose_turn_never_came_is_cancelled(self):
        never: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

        async def wait() -> Command:
            return await never

        def make(_connection: Connection, command: Command) -> Answer:
            return InTurn(never if command.opaque == 50 else wait())

        connection, _, endpoint = connect({LATER: Route(LATER, make)})
        feed(connection, b"".join(frame(LATER, b"", number) for number in range(51)))

        connection.connection_lost(None)

        assert never.cancelled()
        await endpoint.stop("done")

"""Audit around a handler: when the work begins, and the line on its result."""

import asyncio
import json
import logging
from typing import Any

import pytest

from rocketbroker.auth.audit_log import AUDIT_LOGGER, AuditLog
from rocketbroker.codec.remoting.handler import Connection, Process, Route
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.audited import AuditedCode, audit_of
from tests.support.fakes import FakeClock
from tests.support.transports import FakeTransport, connect, feed, frame
from tests.support.waiting import until

CODE, READ = Code.UPDATE_AND_CREATE_TOPIC, Code.GET_TOPIC_CONFIG


class Server:
    """A state, which requests with the code ``CODE`` set to their body, and the lines on them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, AUDIT_LOGGER)
        self._caplog = caplog
        self.state = "old"
        self.settled: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

    def route(self, process: Process) -> Route:
        codes: dict[int, AuditedCode] = {CODE: AuditedCode(lambda command: {bytes(command.body).decode(): self.state})}
        return audit_of(codes, AuditLog("broker", FakeClock()))(Route(CODE, process))

    def set(self, _connection: Connection, command: Command) -> Command:
        self.state = bytes(command.body).decode()
        return response()

    def set_and_settle(self, connection: Connection, command: Command) -> asyncio.Future[Command]:
        self.set(connection, command)
        return self.settled

    async def set_later(self, connection: Connection, command: Command) -> Command:
        return self.set(connection, command)

    def refuse(self, _connection: Connection, _command: Command) -> Command:
        raise BrokerResponseError(ResponseCode.NO_PERMISSION, "not you")

    def fail(self, _connection: Connection, _command: Command) -> Command:
        raise KeyError("a mistake")

    def ask(self, process: Process) -> FakeTransport:
        """Send a change and a read together."""
        read = Route(READ, lambda *_: response(remark=self.state))
        connection, transport, self.endpoint = connect({CODE: self.route(process), READ: read})
        feed(connection, frame(CODE, b"new", 1) + frame(READ, b"", 2))
        return transport

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(record.message) for record in self._caplog.records if record.name == AUDIT_LOGGER]


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> Server:
    return Server(caplog)


async def test_a_handler_that_answers_at_once_does_so_with_its_line(server: Server):
    transport = server.ask(server.set)
    assert [(answer.opaque, answer.remark) for answer in transport.answers] == [(1, None), (2, "new")]
    (line,) = server.lines
    assert (line["result"], line["before"], line["after"]) == ("SUCCESS", {"new": "old"}, {"new": "new"})


async def test_a_handler_whose_answer_waits_has_made_its_change_and_has_its_line_with_the_answer(server: Server):
    transport = server.ask(server.set_and_settle)
    assert [(answer.opaque, answer.remark) for answer in transport.answers] == [(2, "new")]
    assert server.lines == []
    server.settled.set_result(response(ResponseCode.SYSTEM_ERROR, "disk"))
    await until(lambda: len(transport.answers) == 2)
    (line,) = server.lines
    assert (line["result"], line["remark"], line["after"]) == ("SYSTEM_ERROR", "disk", {"new": "new"})


async def test_a_coroutine_begins_in_its_turn(server: Server):
    route = server.route(server.set_later)
    assert route.runs_later
    assert not server.route(server.set).runs_later
    transport = server.ask(server.set_later)
    assert [(answer.opaque, answer.remark) for answer in transport.answers] == [(2, "old")]
    await until(lambda: len(transport.answers) == 2)
    (line,) = server.lines
    assert (line["result"], line["before"], line["after"]) == ("SUCCESS", {"new": "old"}, {"new": "new"})


@pytest.mark.parametrize(("name", "result"), [("refuse", "NO_PERMISSION"), ("fail", "failed")])
async def test_an_error_has_its_line_once(server: Server, name: str, result: str):
    transport = server.ask(getattr(server, name))
    assert [answer.opaque for answer in transport.answers] == [1, 2]
    (line,) = server.lines
    assert line["result"] == result


async def test_a_change_that_is_cancelled_has_its_line(server: Server):
    server.ask(server.set_and_settle)
    await asyncio.sleep(0)
    await server.endpoint.tasks.stop()
    (line,) = server.lines
    assert (line["result"], line["after"]) == ("failed", {"new": "new"})

"""Calls processors as the transport does, with requests of a test or recorded ones."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar, cast

import pytest

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.handler import Connection, Process, Route
from rocketbroker.codec.remoting.remoting_command import (
    Command,
    CommandCustomHeader,
    RemotingCommand,
    request,
    to_ext_fields,
)
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import GoldenFrame, answers_to

F = TypeVar("F")


def family(kind: type[F], parts: object = None, **more: object) -> F:
    """Return a family of request codes with the parts of a test; the others are missing, and fail when they are used.

    Args:
        kind: the family.
        parts: has parts by their names.
        more: parts that ``parts`` lacks, or that replace its own.
    """
    names = [field.name for field in fields(cast("Any", kind)) if field.init]
    return kind(**{name: more[name] if name in more else getattr(parts, name, None) for name in names})


class Answered(NamedTuple):
    """Contents of an answer; ``body`` is its JSON, or its bytes if it has none."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: Any


def answered(command: Command) -> Answered:
    """Return the answer in a form that compares: the order of fields and keys does not count."""
    body = bytes(command.body)
    return Answered(
        int(command.code),
        command.remark,
        to_ext_fields(command.header) or {},
        fastjson.loads(body) if body.startswith(b"{") else body,
    )


def call(process: Process, header: object = None, body: bytes = b"", connection: Connection | None = None) -> Answered:
    """Return the answer of a processor that does not wait."""
    answer = process(connection or FakeConnection(), request(0, header, body))
    assert isinstance(answer, RemotingCommand)
    return answered(answer)


async def call_async(
    process: Process, header: object = None, body: bytes = b"", connection: Connection | None = None
) -> Answered:
    """Return the answer of a processor that is a coroutine function."""
    answer = process(connection or FakeConnection(), request(0, header, body))
    assert inspect.isawaitable(answer)
    waited = await answer
    assert isinstance(waited, RemotingCommand)
    return answered(waited)


def refusal(process: Process, header: object = None, body: bytes = b"") -> tuple[int, str]:
    """Return code and remark of the error that a processor raises."""
    with pytest.raises(BrokerResponseError) as error:
        process(FakeConnection(), request(0, header, body))
    return error.value.code, error.value.remark


async def refusal_async(process: Process, header: object = None, body: bytes = b"") -> tuple[int, str]:
    """Return code and remark of the error that a coroutine function raises."""
    with pytest.raises(BrokerResponseError) as error:
        await call_async(process, header, body)
    return error.value.code, error.value.remark


def decoded(frame: GoldenFrame, header_type: type[CommandCustomHeader] | None = None) -> Command:
    """Return a recorded request as a processor gets it."""
    command = Route(frame.code, lambda _connection, _command: b"", header_type).decode(
        int(frame.binary), memoryview(frame.header())
    )
    command.body = frame.body()
    return command


def recorded(code: int, header_type: type[CommandCustomHeader] | None = None) -> Iterator[tuple[Command, Answered]]:
    """Yield all recorded requests of a code that were answered, and what the answers say."""
    for exchange in answers_to(code):
        assert exchange.response is not None
        yield decoded(exchange.request, header_type), answered(exchange.response.command())

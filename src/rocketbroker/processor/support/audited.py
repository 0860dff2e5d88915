"""Audit of administrative changes: each handler of one is called between two looks at what it changes."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec

from rocketbroker.auth.audit_log import AuditLog, Source
from rocketbroker.codec.remoting.handler import Answer, Connection, Response, Route
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

#: Most topics, groups or settings of one request whose states are written.
MOST_NAMES: Final = 100
_MOST_REMARK: Final = 1_000
# Fields of a header that say who signed it, or prove it.
_CREDENTIALS: Final = frozenset({"AccessKey", "Signature", "SecurityToken"})


def no_state(_command: Command) -> object:
    """Return ``None``: what a request does leaves no state to look at."""
    return None


def header_fields(command: Command) -> dict[str, object]:
    """Return the fields of a typed header that are set, without credentials; a raw header has none of its own."""
    header = command.header
    if not isinstance(header, CommandCustomHeader):
        return {}
    fields = cast("dict[str, object]", msgspec.to_builtins(header))
    return {name: value for name, value in fields.items() if value is not None and name not in _CREDENTIALS}


class _Requester(Protocol):
    """The user behind a request, as a server with access control hands it to a handler."""

    @property
    def username(self) -> str: ...


class AuditedCode(NamedTuple):
    """Description of a change.

    Attributes:
        state: returns what a request changes, as JSON values; it raises BrokerResponseError for a broken body.
        fields: returns what it asks for, without secrets.
    """

    state: Callable[[Command], object] = no_state
    fields: Callable[[Command], dict[str, object]] = header_fields


def audit_of(codes: Mapping[int, AuditedCode], log: AuditLog) -> Callable[[Route], Route]:
    """Return a function that puts the audit around the handler of a route, if it has a code of changes.

    While the audit log is off it returns each route as it is.
    """

    def audit(route: Route) -> Route:
        return _audited(route, codes[route.code], log) if log.is_on and route.code in codes else route

    return audit


def _audited(route: Route, audited_code: AuditedCode, log: AuditLog) -> Route:
    """Return a route that begins its work when the given one does, so that requests keep their order."""

    def begin(connection: Connection, command: Command, requester: tuple[_Requester, ...]) -> tuple[_Change, Answer]:
        source = Source(requester[0].username if requester else None, connection.remote_address)
        change = _Change(source, command, audited_code, log)
        with change.ends_if_it_fails():
            return change, route.process(connection, command, *(requester if route.asks else ()))

    async def process_later(connection: Connection, command: Command, *requester: _Requester) -> Response:
        change, answer = begin(connection, command, requester)
        return await change.wait(cast("Awaitable[Response]", answer))

    def process(connection: Connection, command: Command, *requester: _Requester) -> Answer:
        change, answer = begin(connection, command, requester)
        if isinstance(answer, Awaitable):
            change.keep_body()
            return change.wait(answer)
        change.answered(cast("Response", answer))
        return answer

    return Route(
        route.code,
        process_later if route.runs_later else process,
        route.header_type,
        route.audience,
        takes_large_bodies=route.takes_large_bodies,
        asks=True,
    )


class _Change:
    """A change at work: the state before it, then a line with its result and the state after it."""

    def __init__(self, source: Source, command: Command, audited_code: AuditedCode, log: AuditLog) -> None:
        self._source = source
        self._command = command
        self._state = audited_code.state
        self._log = log
        self._fields = _read(audited_code.fields, command)
        self._before = _read(audited_code.state, command)

    def keep_body(self) -> None:
        """Copy the body, a view of the receive buffer, for an answer that comes later."""
        self._command = msgspec.structs.replace(self._command, body=bytes(self._command.body))

    async def wait(self, answer: Awaitable[Response]) -> Response:
        """Wait for the answer, write the line, and return the answer."""
        with self.ends_if_it_fails():
            response = await answer
        self.answered(response)
        return response

    @contextmanager
    def ends_if_it_fails(self) -> Iterator[None]:
        """Write the line if an error leaves the block."""
        try:
            yield
        except BrokerResponseError as error:
            self._end(_word(error.code), error.remark)
            raise
        except BaseException:
            # Cancelled, or a mistake of ours: it may have made its change.
            self._end("failed", "")
            raise

    def answered(self, response: Response) -> None:
        """Write the line; frames that are ready have code SUCCESS."""
        if isinstance(response, bytes | list):
            self._end(ResponseCode.SUCCESS.name, "")
        else:
            self._end(_word(response.code), response.remark or "")

    def _end(self, result: str, remark: str) -> None:
        facts = {"fields": self._fields, "result": result, "remark": remark[:_MOST_REMARK] or None}
        states = {"before": self._before, "after": _read(self._state, self._command)}
        self._log.changed(self._source, self._command.code, {**facts, **states})


def _read(describe: Callable[[Command], Any], command: Command) -> Any:
    """Return a description, ``None`` if the body cannot be read, which the handler answers."""
    try:
        return describe(command)
    except BrokerResponseError:
        return None


def _word(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)

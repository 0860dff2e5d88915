"""Audit of administrative changes: each handler of one is called between two looks at what it changes."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec

from rocketbroker.auth.audit_log import AuditLog, Source
from rocketbroker.codec.remoting.handler import Answer, Connection, InTurn, Response, Route
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
    async def process(connection: Connection, command: Command, *requester: _Requester) -> Response:
        source = Source(requester[0].username if requester else None, connection.remote_address)
        fields = _read(audited_code.fields, command)
        before = _read(audited_code.state, command)
        result, remark = "failed", ""
        try:
            response = await _response(route.process(connection, command, *(requester if route.asks else ())))
            result, remark = _result(response)
        except BrokerResponseError as error:
            result, remark = _word(error.code), error.remark
            raise
        finally:
            # Also for a request that is cancelled, or fails by a mistake of ours: it may have made its change.
            facts = {"fields": fields, "result": result, "remark": remark[:_MOST_REMARK] or None}
            after = _read(audited_code.state, command)
            log.changed(source, route.code, {**facts, "before": before, "after": after})
        return response

    return Route(
        route.code, process, route.header_type, route.audience, takes_large_bodies=route.takes_large_bodies, asks=True
    )


def _read(describe: Callable[[Command], Any], command: Command) -> Any:
    """Return a description, ``None`` if the body cannot be read, which the handler answers."""
    try:
        return describe(command)
    except BrokerResponseError:
        return None


async def _response(answer: Answer) -> Response:
    if isinstance(answer, InTurn):
        answer = answer.work
    if inspect.isawaitable(answer):
        return await answer
    return cast("Response", answer)


def _result(response: Response) -> tuple[str, str]:
    """Return the name of a response's code, and its remark; frames that are ready have code SUCCESS."""
    if isinstance(response, bytes | list):
        return ResponseCode.SUCCESS.name, ""
    return _word(response.code), response.remark or ""


def _word(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)

"""Families of request codes: classes whose methods each answer a code, and the routes to them.

A family is a dataclass of the parts that its methods need. A method has the name of its code and says above itself
what it answers, and to whom::

    @answers(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader)
    def get_topic_config(self, connection, command): ...

The decorator only leaves a note. ``routes_of`` reads the notes once, at the start of a server, so that a request costs
no more than a look-up of its code.
"""

from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from rocketbroker.codec.remoting.handler import Answer, Audience, Connection, MethodTable, Route
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, RemotingCommand
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

S = TypeVar("S")
H = TypeVar("H", bound=CommandCustomHeader)
A = TypeVar("A", bound=Answer)
P = ParamSpec("P")
# A method may have more parameters, with defaults, for calls other than those of a server.
Method = Callable[Concatenate[S, Connection, RemotingCommand[H], P], A]

_NOTES: Final = "answered_codes"


class Refusal(NamedTuple):
    """Answer of a slave, with Apache's response code, to a request that would change messages or tables."""

    code: ResponseCode
    remark: str

    def guard(self, _connection: Connection, _command: Command) -> None:
        """Reject the request."""
        raise BrokerResponseError(self.code, self.remark)


NO_MESSAGES: Final = "this broker is a slave and takes no messages; send to the master"
NO_OUTCOMES: Final = "this broker is a slave and ends no transaction; send the outcome to the master"
NO_CHANGES: Final = Refusal(
    ResponseCode.SYSTEM_ERROR,
    "this broker is a slave, whose tables follow those of its master; make the change at the master",
)
NO_RESETS: Final = Refusal(
    ResponseCode.SYSTEM_ERROR,
    "this broker is a slave, whose offsets follow those of its master; reset them at the master",
)


class _Note(NamedTuple):
    code: RequestCode
    header_type: type[CommandCustomHeader] | None
    audience: Audience
    takes_large_bodies: bool
    runs: str | None
    at_slave: Refusal | None
    asks: bool


def answers(
    code: RequestCode,
    header_type: type[H] | None = None,
    audience: Audience = Audience.ADMINISTRATION,
    *,
    takes_large_bodies: bool = False,
    runs: str | None = None,
    at_slave: Refusal | None = None,
    asks: bool = False,
) -> Callable[[Method[S, H, P, A]], Method[S, H, P, A]]:
    """Mark a method as the handler of a code; it may have several.

    Args:
        code: the request code.
        header_type: typed header, or ``None`` for raw ``extFields``.
        audience: least privileged kind of peer that may send it.
        takes_large_bodies: accept bodies up to a frame; the method checks them.
        runs: name of the attribute that handles requests which come together.
        at_slave: answer of a slave, which does not call the method; ``None`` if it does.
        asks: the method has a parameter more, ``requester: Requester | None = None``; see ``Route``.
    """

    def mark(method: Method[S, H, P, A]) -> Method[S, H, P, A]:
        note = _Note(code, header_type, audience, takes_large_bodies, runs, at_slave, asks)
        setattr(method, _NOTES, (note, *getattr(method, _NOTES, ())))
        return method

    return mark


def routes_of(
    families: Iterable[object], *, is_slave: bool = False, around: Callable[[Route], Route] | None = None
) -> dict[int, Route]:
    """Route all codes that the families answer, each to its bound method.

    Args:
        families: objects with marked methods.
        is_slave: let a slave reject what its methods mark.
        around: returns the route to serve for each route; a slave's rejection stays outside.

    Raises:
        ValueError: Two methods answer one code.
    """
    table = MethodTable()
    for family in families:
        for name in dir(type(family)):
            notes: tuple[_Note, ...] = getattr(getattr(type(family), name), _NOTES, ())
            for note in notes:
                runs: Any = None if note.runs is None else getattr(family, note.runs)
                table.add(
                    note.code,
                    getattr(family, name),
                    note.header_type,
                    note.audience,
                    takes_large_bodies=note.takes_large_bodies,
                    runs=runs,
                    asks=note.asks,
                )
                if around is not None:
                    table.routes[note.code] = around(table.routes[note.code])
                if is_slave and note.at_slave is not None:
                    table.routes[note.code] = table.routes[note.code].guarded(note.at_slave.guard)
    return table.routes

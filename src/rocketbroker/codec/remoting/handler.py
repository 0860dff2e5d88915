"""Request handlers: their connection, their answers, and the routes to them (NettyRequestProcessor).

The Protocols keep ``transport`` and ``processor`` independent of each other.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, Protocol, Self

from rocketbroker.codec.remoting.frame import (
    SERIALIZE_JSON,
    HeaderFieldError,
    TypedJsonDecoder,
    decode_json_header,
    decode_rocketmq_header,
    with_typed_header,
)
from rocketbroker.codec.remoting.header_template import Decode, FullMatch, HeaderTemplate, VaryingField, make_template
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError


class Audience(IntEnum):
    """Kind of peer; each may also send what those before it may send.

    A route names the lowest kind that may send it; a connection has the kind as which its peer was admitted.
    """

    CLIENT = 1
    BROKER = 2
    ADMINISTRATION = 3

    @property
    def word(self) -> str:
        """Name of the audience in texts for people: ``client``, ``broker`` or ``administration``."""
        return self.name.lower()


Buffer = bytes | bytearray | memoryview


class Connection(Protocol):
    """Open connection for answers and requests (io.netty.channel.Channel)."""

    @property
    def remote_address(self) -> str:
        """``ip:port`` of the peer."""

    @property
    def remote_host(self) -> bytes:
        """Address of the peer as in message records: 4 or 16 address bytes and an int32 port."""

    @property
    def audience(self) -> Audience:
        """Kind of peer as which the peer is admitted; a change of settings may change it."""

    @property
    def share(self) -> bytes | None:
        """Key of the peer's address in shares of tables; ``None`` for a peer that is more than a client."""

    @property
    def is_open(self) -> bool:
        """True if writes still reach the peer."""

    @property
    def is_behind(self) -> bool:
        """True if the peer takes its answers more slowly than it sends requests."""

    @property
    def waited_s(self) -> float:
        """Seconds that the current request waited after its read, because too many of its connection were pending."""

    @property
    def last_read(self) -> float:
        """Time of the last read, in seconds of the monotonic clock."""

    def answer(self, command: Command, make: "Callable[[], Answer]") -> None:
        """Answer a ``HELD`` request with what ``make`` returns or raises, as if its handler had; then call ``flush``.

        While the peer is behind, call ``make`` at the request's turn: see ``InTurn``.
        """

    def flush(self) -> None:
        """Write the collected answers."""

    def send_oneway(self, command: Command) -> bool:
        """Send a one-way request; return false if it was dropped because the peer is gone or too far behind."""

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its answer.

        Raises:
            RemotingSendError: The connection was lost before the answer arrived, or the peer is too far behind.
            RemotingTimeoutError: No answer arrived in time.
        """

    def close(self, reason: str) -> None:
        """Send the written answers, then close the connection; log the reason."""

    def close_after_batch(self, reason: str) -> None:
        """Handle no further request, and close once the answers of this read event are written; log the reason."""

    def note_failure(self) -> None:
        """Count the connection as failed, once: its address gets few new ones while too many of them fail."""


class Held(Enum):
    """Type of ``HELD``."""

    HELD = 0


class InTurn(NamedTuple):
    """Work that makes a response in turn; a coroutine does not start before its turn.

    A connection runs a few at a time, and none while its peer is behind, so that large answers do not pile up.
    """

    work: Awaitable["Response"]


#: Result of a handler that keeps the request, for ``Connection.answer`` to answer later.
HELD: Final = Held.HELD

# A frame whose code is SUCCESS, the pieces of any frame with the header in the first, or a command to encode.
Response = bytes | list[Buffer] | Command
Answer = Response | Awaitable[Response] | InTurn | Held
# A handler gets the connection and the command. One whose route ``asks`` gets the user behind the request as well, an
# ``auth.requester.Requester``, from a server with access control.
Process = Callable[..., Answer]
# Answers to the requests of a run: frames whose code is SUCCESS, back to back, or a command to encode for each request.
RunAnswers = bytes | Sequence[Command]
# Checks a request by its raw ``extFields``; raises BrokerResponseError to reject it.
Guard = Callable[[Connection, Command], None]


class RunAnswersFuture(Protocol):
    """Answers to a run that are ready later: the part of ``asyncio.Future`` that a connection uses."""

    def add_done_callback(self, callback: Callable[[Self], object], /) -> None: ...

    def cancelled(self) -> bool: ...

    def exception(self) -> BaseException | None: ...

    def result(self) -> RunAnswers: ...


# Values of the requests of a run: a column for each varying field, and one of the opaques.
Columns = Sequence[Sequence[bytes]]


class ProcessRun(Protocol):
    """``RunHandler.process``."""

    def __call__(
        self, connection: Connection, command: Command, columns: Columns, bodies: Sequence[memoryview], /
    ) -> RunAnswers | RunAnswersFuture | None: ...


# Returns the command of a request from its connection, the values of its template, and its body; ``None`` to leave the
# request to its route.
DecodeOne = Callable[[Connection, Sequence[bytes], memoryview], Command | None]


class Shortcut(NamedTuple):
    """Decoder and route of a request that comes alone and fits a template.

    Attributes:
        fullmatch: matches the header, by the template.
        decode: returns the command.
        route: takes the command.
    """

    fullmatch: FullMatch
    decode: DecodeOne
    route: "Route"


class RunKind(NamedTuple):
    """Requests that may come in a run: those whose headers fit a template; ``shortcut`` is for one that comes alone."""

    template: HeaderTemplate
    process: ProcessRun
    shortcut: Shortcut | None = None


class RunLearner(Protocol):
    """Finds the requests of one code that may be handled together."""

    @property
    def fewest(self) -> int:
        """Least number of requests that are handled faster together."""

    @property
    def learns_alone(self) -> bool:
        """True if requests that come alone gain from a template, by its shortcut."""

    def accepts(self, command: Command) -> bool:
        """Return true if requests like this one may come in runs."""

    def learn(self, header: bytes, command: Command, decode: Decode) -> RunKind | None:
        """Return the kind of runs that an accepted request belongs to, ``None`` if its header makes no template.

        Args:
            header: its header.
            command: what the header decodes to.
            decode: the decoder of its route.
        """


class RunHandler(ABC):
    """Handler of requests of one code that come by one read event and whose headers differ in a few values only.

    Attributes:
        fields: values in which the headers may differ, in the order in which a header has them.
        fewest: least number of requests that are handled faster together.
    """

    fields: Sequence[VaryingField]
    fewest: int
    learns_alone = False

    @abstractmethod
    def accepts(self, command: Command) -> bool:
        """Return true if requests like this one may come in runs."""

    def learn(self, header: bytes, command: Command, decode: Decode) -> RunKind | None:
        """Return the kind of runs that an accepted request belongs to (``RunLearner``)."""
        template = make_template(header, command, self.fields, decode)
        return None if template is None else RunKind(template, self.process)

    @abstractmethod
    def process(
        self, connection: Connection, command: Command, columns: Columns, bodies: Sequence[memoryview]
    ) -> RunAnswers | RunAnswersFuture | None:
        """Handle all requests and return their answers, or handle none and return ``None``: each is then handled alone.

        A future answers all of them together. An error is the answer to each, because they may have been handled.

        Args:
            connection: the connection that they came by.
            command: a request that differs from each of them only in ``columns``.
            columns: values of ``fields``, a column each, and the opaques; a value for each request.
            bodies: their bodies, views of the receive buffer.
        """


class Route:
    """Route of one request code: decoder of its header, and handler.

    Args:
        code: the request code.
        process: called with the connection and the command; may be a coroutine function. The command's body is a view
            of the receive buffer (a copy for coroutine functions); copy what must outlive the call.
        header_type: typed header, or ``None`` for raw ``extFields``.
        audience: least privileged kind of peer that may send it.
        takes_large_bodies: accept bodies up to a frame, for messages and registrations; ``process`` checks them.
        runs: handles requests that come together, if the code has such a handler.
        asks: ``process`` takes the user behind the request as a third argument, for rights that depend on what it
            looks up.

    Attributes:
        runs_later: ``process`` is a coroutine function. It does not start before its turn, when the receive buffer has
            other bytes, so it gets a copy of the body.
    """

    __slots__ = (
        "asks",
        "audience",
        "code",
        "decode_json",
        "header_type",
        "process",
        "runs",
        "runs_later",
        "takes_large_bodies",
    )

    def __init__(
        self,
        code: int,
        process: Process,
        header_type: type[CommandCustomHeader] | None = None,
        audience: Audience = Audience.ADMINISTRATION,
        *,
        takes_large_bodies: bool = False,
        runs: RunLearner | None = None,
        asks: bool = False,
    ) -> None:
        self.runs = runs
        self.asks = asks
        self.audience = audience
        self.code = int(code)
        self.process = process
        self.header_type = header_type
        self.takes_large_bodies = takes_large_bodies
        self.runs_later = inspect.iscoroutinefunction(process)
        self.decode_json: Callable[[memoryview], Command] = (
            decode_json_header if header_type is None else TypedJsonDecoder(header_type)
        )

    def decode(self, serialize_type: int, header: memoryview) -> Command:
        """Decode a header in either encoding.

        Raises:
            RemoteProtocolError: The header is broken.
            HeaderFieldError: A field is missing or of the wrong type.
        """
        if serialize_type == SERIALIZE_JSON:
            return self.decode_json(header)
        command = decode_rocketmq_header(header)
        return command if self.header_type is None else with_typed_header(command, self.header_type)

    def guarded(self, guard: Guard) -> "Route":
        """Return this route with a guard between decoder and handler."""

        def process(connection: Connection, command: Command, *requester: Any) -> Answer:
            guard(connection, command)
            if self.header_type is not None:
                try:
                    command = with_typed_header(command, self.header_type)
                except HeaderFieldError as error:
                    raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
            return self.process(connection, command, *requester)

        route = Route(
            self.code, process, None, self.audience, takes_large_bodies=self.takes_large_bodies, asks=self.asks
        )
        route.runs_later = self.runs_later
        return route


class MethodTable:
    """Routes by request code, one handler each (BrokerController.registerProcessor)."""

    def __init__(self) -> None:
        self.routes: dict[int, Route] = {}

    def add(
        self,
        code: int,
        process: Process,
        header_type: type[CommandCustomHeader] | None = None,
        audience: Audience = Audience.ADMINISTRATION,
        *,
        takes_large_bodies: bool = False,
        runs: RunLearner | None = None,
        asks: bool = False,
    ) -> None:
        """Add the route of a code; by default only administrators may send it.

        Raises:
            ValueError: The code has a route already.
        """
        if code in self.routes:
            raise ValueError(f"request code {int(code)} has two routes")
        self.routes[int(code)] = Route(
            code, process, header_type, audience, takes_large_bodies=takes_large_bodies, runs=runs, asks=asks
        )

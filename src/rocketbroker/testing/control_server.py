"""HTTP front of a ``RocketMQServer`` for test suites in other languages: clock, faults and reset.

It listens on the loopback address alone, and rejects what a browser sends for a web page: any page could otherwise
break the tests of the developer who looks at it. Requests are served one at a time, so that their order is the order of
their effects.
"""

import threading
from collections.abc import Callable, Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any, Final, TypeVar, get_args
from urllib.parse import unquote, urlsplit

import msgspec

from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.hosts import LOOPBACK
from rocketbroker.common.errors import ConfigError, RocketBrokerError
from rocketbroker.testing.faults import PULLS, SENDS
from rocketbroker.testing.rocketmq_server import RocketMQServer

MOST_BODY_BYTES: Final = 64 * 1024
_SILENCE_S: Final = 10.0
_LOCAL_NAMES: Final = frozenset({LOOPBACK, "localhost"})

T = TypeVar("T")


class ControlError(RocketBrokerError):
    """A request to the control port that is answered by an error.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Order(msgspec.Struct, forbid_unknown_fields=True, rename="camel", tag_field="fault", kw_only=True):
    """Fault for the next requests, as ``Faults`` takes it."""

    to: str | list[str | int] = "sends"
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    broker: str | None = None


class _AnswerOrder(_Order, tag="answer"):
    code: str | int
    remark: str = "ordered by a test"


class _DelayOrder(_Order, tag="delayAnswers"):
    seconds: Annotated[float, msgspec.Meta(ge=0)]


class _DropOrder(_Order, tag="dropAnswers"):
    pass


class _IgnoreOrder(_Order, tag="ignoreRequests"):
    pass


class _CutOrder(_Order, tag="cutConnections"):
    pass


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """Body without fields."""


class _Advance(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float


class _Broker(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    broker: str = "broker-a"


class _Restart(_Broker, rename="camel"):
    lose_unflushed: bool = False


_Fault = _AnswerOrder | _DelayOrder | _DropOrder | _IgnoreOrder | _CutOrder


class ControlServer:
    """A ``RocketMQServer`` and the HTTP server that controls it, started and stopped together.

    Args:
        mq: the server, not started yet.
        port: port of the HTTP server; 0 picks a free one.
    """

    def __init__(self, mq: RocketMQServer, port: int) -> None:
        self._mq = mq
        self._port = port
        self._lock = threading.Lock()
        self._http: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._commands: dict[tuple[str, str], Callable[[bytes], dict[str, Any]]] = {
            ("GET", "/"): self._state,
            ("POST", "/clock/advance"): self._advance,
            ("POST", "/faults"): self._order,
            ("DELETE", "/faults"): self._plain(mq.faults.clear),
            ("POST", "/connections/cut"): self._plain(mq.cut_connections),
            ("POST", "/disk/fill"): self._plain(mq.fill_disk),
            ("POST", "/disk/free"): self._plain(mq.free_disk),
            ("POST", "/freeze"): self._plain(mq.freeze),
            ("POST", "/thaw"): self._plain(mq.thaw),
            ("POST", "/flush"): self._plain(mq.flush),
            ("POST", "/broker/stop"): self._stop_broker,
            ("POST", "/broker/start"): self._start_broker,
            ("POST", "/broker/restart"): self._restart_broker,
            ("POST", "/reset"): self._plain(mq.reset),
        }

    @property
    def url(self) -> str:
        """Address of the HTTP server, ``http://127.0.0.1:PORT``."""
        return f"http://{LOOPBACK}:{self._port}"

    async def start(self) -> None:
        """Start both servers.

        Raises:
            ConfigError: A port is in use.
        """
        http = self._listen()
        try:
            await self._mq.__aenter__()
        except BaseException:
            http.server_close()
            raise
        self._http = http
        self._thread = threading.Thread(target=http.serve_forever, name="ControlServer", args=(0.05,))
        self._thread.start()

    async def stop(self) -> None:
        """Stop both servers."""
        if self._http is None or self._thread is None:
            return
        self._http.shutdown()  # returns when the thread has seen it
        self._thread.join()
        self._http.server_close()
        self._http = self._thread = None
        await self._mq.__aexit__(None, None, None)

    def _listen(self) -> ThreadingHTTPServer:
        control = self

        class Handler(_Handler):
            answer = staticmethod(control.answer)

        try:
            http = ThreadingHTTPServer((LOOPBACK, self._port), Handler)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {LOOPBACK}:{self._port}: {error.strerror}; choose another --control-port, or 0 for "
                "a free one"
            ) from error
        self._port = http.server_port
        return http

    def answer(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Obey a request and return the body of its answer.

        Raises:
            ControlError: It is unknown or invalid, or the server cannot obey it now.
        """
        command = self._commands.get((method, path))
        if command is None:
            methods = [known for known, each in self._commands if each == path]
            if methods:
                raise ControlError(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} {path}: use {' or '.join(methods)}")
            paths = ", ".join(dict.fromkeys(each for _, each in self._commands))
            raise ControlError(HTTPStatus.NOT_FOUND, f"no {path}; there are {paths}")
        with self._lock:
            try:
                return command(body)
            except msgspec.MsgspecError as error:
                raise ControlError(HTTPStatus.BAD_REQUEST, f"{path}: {error}") from error
            except ValueError as error:
                raise ControlError(HTTPStatus.BAD_REQUEST, str(error)) from error
            except ControlError:
                raise
            except RocketBrokerError as error:
                raise ControlError(HTTPStatus.CONFLICT, str(error)) from error

    # -- commands

    def _plain(self, action: Callable[[], None]) -> Callable[[bytes], dict[str, Any]]:
        def obey(body: bytes) -> dict[str, Any]:
            _decode(body, _Nothing)
            action()
            return {}

        return obey

    def _state(self, _body: bytes) -> dict[str, Any]:
        return {"namesrvAddr": self._mq.namesrv_addr, "brokerAddr": self._mq.broker_addr, **self._time()}

    def _time(self) -> dict[str, Any]:
        return {"timeMs": self._mq.clock.time_ms()}

    def _advance(self, body: bytes) -> dict[str, Any]:
        self._mq.clock.advance(_decode(body, _Advance).seconds)
        return self._time()

    def _order(self, body: bytes) -> dict[str, Any]:
        order = _decode_fault(body)
        faults, to = self._mq.faults, _requests(order.to)
        times, broker = order.times, order.broker
        if broker is not None and broker not in self._mq.broker_names:
            raise ValueError(f"no broker {broker!r}; there are {', '.join(self._mq.broker_names)}")
        match order:
            case _AnswerOrder(code=code, remark=remark):
                faults.answer(_number(ResponseCode, code), remark, times=times, to=to, broker=broker)
            case _DelayOrder(seconds=seconds):
                faults.delay_answers(seconds, times=times, to=to, broker=broker)
            case _DropOrder():
                faults.drop_answers(times=times, to=to, broker=broker)
            case _IgnoreOrder():
                faults.ignore_requests(times=times, to=to, broker=broker)
            case _CutOrder():
                faults.cut_connections(times=times, to=to, broker=broker)
        return {}

    def _stop_broker(self, body: bytes) -> dict[str, Any]:
        self._mq.stop_broker(_decode(body, _Broker).broker)
        return {}

    def _start_broker(self, body: bytes) -> dict[str, Any]:
        self._mq.start_broker(_decode(body, _Broker).broker)
        return {}

    def _restart_broker(self, body: bytes) -> dict[str, Any]:
        order = _decode(body, _Restart)
        self._mq.restart_broker(order.broker, lose_unflushed=order.lose_unflushed)
        return {}


class _Handler(BaseHTTPRequestHandler):
    """One connection; ``answer`` obeys a request."""

    answer: Callable[[str, str, bytes], dict[str, Any]]
    timeout = _SILENCE_S
    server_version = "rocketbroker"
    sys_version = ""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        try:
            self._check_origin()
            body = self._body()
            self._send(HTTPStatus.OK, type(self).answer(self.command, unquote(urlsplit(self.path).path), body))
        except ControlError as error:
            self._send(error.status, {"error": str(error)})

    def _check_origin(self) -> None:
        """Reject requests of web pages, which name their origin, or a host of theirs that leads here.

        Raises:
            ControlError: It is one.
        """
        host = self.headers.get("Host", LOOPBACK).rpartition(":")[0] or self.headers.get("Host", LOOPBACK)
        if self.headers.get("Origin") is not None or host not in _LOCAL_NAMES:
            raise ControlError(HTTPStatus.FORBIDDEN, f"web pages may not use this port; use http://{LOOPBACK}")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > MOST_BODY_BYTES:
            self.close_connection = True
            raise ControlError(
                HTTPStatus.BAD_REQUEST, f"Content-Length: {length}; send a body of 0 to {MOST_BODY_BYTES:,} bytes"
            )
        return self.rfile.read(int(length))

    def _send(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        content = msgspec.json.encode(body) + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no valid request."""
        self._send(HTTPStatus(code), {"error": message or explain or HTTPStatus(code).phrase})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing: the output is the terminal of the user."""


def _decode(body: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(body or b"{}", type=kind)


def _decode_fault(body: bytes) -> _Fault:
    """Decode a fault.

    Raises:
        ValueError: It is invalid.
    """
    try:
        fault: _Fault = msgspec.json.decode(body or b"{}", type=_Fault)
    except msgspec.ValidationError as error:
        kinds = ", ".join(str(kind.__struct_config__.tag) for kind in get_args(_Fault))
        raise ValueError(f"{error}; a fault is one of {kinds}") from error
    return fault


def _requests(to: str | list[str | int]) -> Collection[int]:
    if isinstance(to, list):
        return [_number(RequestCode, each) for each in to]
    named = {"sends": SENDS, "pulls": PULLS}
    if to not in named:
        raise ValueError(f"to={to!r}; give sends, pulls, or a list of request codes")
    return named[to]


def _number(codes: type[RequestCode] | type[ResponseCode], code: str | int) -> int:
    """Return a code by its name or number.

    Raises:
        ValueError: No code has the name.
    """
    if isinstance(code, int):
        return code
    if code not in codes.__members__:
        example = "SYSTEM_BUSY" if codes is ResponseCode else "SEND_MESSAGE_V2"
        raise ValueError(f"{code!r} is no {codes.__name__}; give a name such as {example}, or a number")
    return codes[code].value

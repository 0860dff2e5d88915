"""Answers to the requests of one connection: at once, when a future is done, or in turn.

A peer can send requests faster than it takes answers, and each request may produce a large answer. Three bounds keep
what one connection holds small, whatever its peer does. Coroutines run ``_MOST_AT_WORK`` at a time, in order of
arrival, and none starts while the peer is behind: the answers that exist are those of a few requests. Requests without
an answer are counted with their bodies, and at ``_MOST_OPEN`` of them the connection is not read until half are
answered. Answers of a read event are written together, but above ``_FLUSH_BYTES`` before it ends. The account of the
endpoint (``HeldMemory``) bounds the sum over all connections.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import HELD, Answer, InTurn, Response, Route, RunAnswers, RunAnswersFuture
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, FLAG_RESPONSE, Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.transport.endpoint import Endpoint, EndpointConnection
from rocketbroker.transport.frame_writer import FrameWriter
from rocketbroker.transport.peer_limits import HeldMemory
from rocketbroker.transport.request_meter import Cause

log = logging.getLogger(__name__)

# Requests at work at a time, each of which may produce a large answer.
_MOST_AT_WORK = 4
# Requests of one connection without an answer, and bytes of their bodies, at which it is not read until half are
# answered.
_MOST_OPEN = 1024
_MOST_BODY_BYTES = 4 * 1024 * 1024
# Bytes of answers above which they are written before the read event ends.
_FLUSH_BYTES = 256 * 1024
# Characters; a remark that quotes the request could fill a frame.
_MOST_REMARK = 4096
# Causes of a slow request.
_HANDLER = "its handler, or requests of the same read event, kept the event loop busy"
_DISK = "its answer waited for the disk, for slaves or for name servers"


def error_answer(code: int, error: BaseException) -> Command:
    """Return the answer for a handler's error; log an unexpected error with its traceback."""
    if isinstance(error, BrokerResponseError):
        return response(error.code, error.remark)
    log.error("request code %d failed", code, exc_info=error)
    return response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _encoded(command: Command, answer: Command) -> bytes:
    """Encode the answer to a request; an answer that cannot be encoded becomes an error answer."""
    try:
        return _frame(command.opaque, answer)
    except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
        return _frame(command.opaque, error_answer(command.code, error))


def _frame(opaque: int, answer: Command) -> bytes:
    answer.opaque = opaque
    answer.flag |= FLAG_RESPONSE
    remark = answer.remark
    if remark is not None and len(remark) > _MOST_REMARK:
        answer.remark = f"{remark[:_MOST_REMARK]}... ({len(remark)} characters)"
    return encode_frame(answer)


async def _made_in_turn(make: Callable[[], Answer]) -> Response:
    """Return a response that was deferred because its peer was too far behind."""
    answer = make()
    assert answer is not HELD, "a held request is not held again"
    work = answer.work if isinstance(answer, InTurn) else answer
    return await work if isinstance(work, Awaitable) else work


class HandledRun(msgspec.Struct):
    """Requests that were handled together, and their answers.

    Attributes:
        route: their route.
        command: one of them, without its body.
        opaques: the opaque of each.
        received_at: time of their read event.
        answers: their answers, or a future of these.
    """

    route: Route
    command: Command
    opaques: Sequence[bytes]
    received_at: float
    answers: RunAnswers | RunAnswersFuture = b""

    def __len__(self) -> int:
        return len(self.opaques)

    def failed(self, error: BaseException) -> Sequence[Command]:
        """Return the answers for an error of their handler."""
        return [error_answer(self.route.code, error)] * len(self)

    def commands(self) -> Iterator[Command]:
        """Yield the requests one by one."""
        for opaque in self.opaques:
            yield msgspec.structs.replace(self.command, opaque=int(opaque), received_at=self.received_at)


class Responder:
    """Sends the response of each request when it is ready.

    Args:
        connection: the connection that the requests come by.
        writer: takes the responses.
        endpoint: owns the tasks of the answers, and counts requests.
        memory: accounts for the bodies of pending requests.

    Attributes:
        open_requests: number of requests without an answer.
        body_bytes: bytes of their bodies.
        is_full: so many requests are open that the connection is not read.
    """

    def __init__(
        self, connection: EndpointConnection, writer: FrameWriter, endpoint: Endpoint, memory: HeldMemory
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._endpoint = endpoint
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        # Requests whose turn has not come, the number of those whose turn it is, and whether a turn may begin.
        self._waiting: deque[tuple[Command, Awaitable[Any]]] = deque()
        self._at_work = 0
        self._is_stopped = False
        self.open_requests = 0
        self.body_bytes = 0
        self.is_full = False

    def answer(self, command: Command, make: Callable[[], Answer]) -> None:
        """Answer a ``HELD`` request with what ``make`` returns or raises, as if its handler had; the caller flushes."""
        try:
            answer = InTurn(_made_in_turn(make)) if self._connection.is_behind else make()
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
            answer = error_answer(command.code, error)
        self.take(command, answer, command.received_at, is_suspended=True)

    def take(self, command: Command, answer: Answer, received_at: float = 0.0, *, is_suspended: bool = False) -> None:
        """Answer now, or when the response is ready."""
        command.received_at = received_at or self._connection.last_read
        command.is_suspended = is_suspended
        kind = type(answer)
        if kind is list or kind is RemotingCommand:
            self._respond(command, answer, _HANDLER)
            return
        body_bytes = len(command.body)
        if type(command.body) is memoryview:
            # A pending request must not keep the receive buffer.
            command.body = b""
        if answer is HELD:
            return
        if isinstance(answer, asyncio.Future):
            # The copy of a coroutine's route; nobody reads it any more.
            command.body = b""
            self._more_open(1)
            answer.add_done_callback(partial(self._future_done, command))
        elif isinstance(answer, InTurn):
            self.body_bytes += len(command.body)
            self._waiting.append((command, answer.work))
            self._begin_turns()
            self._more_open(1)
            if self.body_bytes:
                self._memory.is_settled = False
        elif isinstance(answer, Awaitable):
            self.body_bytes += body_bytes
            self._begin(command, answer).add_done_callback(partial(self._ended, answer, body_bytes))
            self._memory.is_settled = False
            self._more_open(1)
        else:
            self._respond(command, answer, _HANDLER)

    def take_run(self, run: HandledRun) -> None:
        """Answer the requests of a run now, or all of them when their future is done."""
        if isinstance(run.answers, Sequence):
            self._respond_to_run(run, run.answers, _HANDLER)
        else:
            self._more_open(len(run))
            run.answers.add_done_callback(partial(self._run_done, run))

    # -- requests without an answer

    def stop(self) -> None:
        """Begin no more turns until ``resume``."""
        self._is_stopped = True

    def resume(self) -> None:
        """Begin turns again after ``stop``."""
        self._is_stopped = False
        self._begin_turns()

    def drop_waiting(self) -> None:
        """Begin no more turns, and drop the requests that wait for one; those at work go on."""
        self.stop()
        while self._waiting:
            command, work = self._waiting.popleft()
            self._release(work, len(command.body))

    def _begin_turns(self) -> None:
        while self._waiting and self._at_work < _MOST_AT_WORK and not self._is_stopped:
            command, work = self._waiting.popleft()
            self._at_work += 1
            self._begin(command, work).add_done_callback(partial(self._turn_ended, work, len(command.body)))

    def _begin(self, command: Command, work: Awaitable[Any]) -> asyncio.Task[None]:
        return self._endpoint.tasks.start(self._respond_when_done(command, work), f"request-{command.code}")

    async def _respond_when_done(self, command: Command, waiting: Awaitable[Any]) -> None:
        began = self._loop.time()
        try:
            # The peer determines how long a request waits for its turn; its user may have lost the right by then.
            if callable(command.grant):
                command.grant()
            answer = await waiting
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
            answer = error_answer(command.code, error)
        turn_s, work_s = began - command.received_at, self._loop.time() - began
        self._respond(command, answer, f"it waited {turn_s:.2f} s for its turn and took {work_s:.2f} s of work")
        self._writer.flush_soon()

    def _turn_ended(self, work: Awaitable[Any], body_bytes: int, task: asyncio.Task[None]) -> None:
        self._at_work -= 1
        self._begin_turns()
        self._ended(work, body_bytes, task)

    def _ended(self, work: Awaitable[Any], body_bytes: int, _task: asyncio.Task[None]) -> None:
        self._release(work, body_bytes)
        self._read_when_half_full()
        if not self._memory.is_settled:
            self._memory.settle(progressed=True)

    def _release(self, work: Awaitable[Any], body_bytes: int) -> None:
        self.open_requests -= 1
        self.body_bytes -= body_bytes
        if inspect.iscoroutine(work):
            # Avoids the warning about a coroutine that never ran; no effect on one that has ended.
            work.close()
        elif isinstance(work, asyncio.Future):
            # Avoids the log line about an exception that nobody has asked for; no effect on one that is done.
            work.cancel()

    def _more_open(self, requests: int) -> None:
        self.open_requests += requests
        is_full = self.open_requests >= _MOST_OPEN or self.body_bytes > _MOST_BODY_BYTES
        if is_full and not self.is_full and self._endpoint.throttles:
            self.is_full = True
            self._connection.stop_reading()

    def _read_when_half_full(self) -> None:
        # Not as soon as one is answered: the transport would be paused and resumed for each.
        if self.is_full and self.open_requests <= _MOST_OPEN // 2 and self.body_bytes <= _MOST_BODY_BYTES // 2:
            self.is_full = False
            self._connection.read_again()

    def _future_done(self, command: Command, future: asyncio.Future[Any]) -> None:
        """Answer with the result of a future; sends wait in futures because a task costs more."""
        self.open_requests -= 1
        if not future.cancelled():
            error = future.exception()
            cause = self._endpoint.hooks.parts_of(future) or _DISK
            self._respond(command, future.result() if error is None else error_answer(command.code, error), cause)
            self._writer.flush_soon()
        self._read_when_half_full()

    def _run_done(self, run: HandledRun, future: RunAnswersFuture) -> None:
        """Answer all requests of a run with the result of a future."""
        self.open_requests -= len(run)
        if not future.cancelled():
            error = future.exception()
            cause = self._endpoint.hooks.parts_of(future) or _DISK
            self._respond_to_run(run, future.result() if error is None else run.failed(error), cause)
            self._writer.flush_soon()
        self._read_when_half_full()

    # -- responses

    def _respond(self, command: Command, answer: Any, cause: Cause) -> None:
        """Count a request and collect its response; every response but the bytes of a handler leaves here.

        ``cause`` says where the time of a slow request went.
        """
        connection, writer = self._connection, self._writer
        if isinstance(answer, list):
            pieces = answer
        else:
            pieces = [answer if isinstance(answer, bytes) else _encoded(command, answer)]
        seconds = self._loop.time() - command.received_at
        self._endpoint.meter.add(command, pieces[0], seconds, connection.remote_address, cause)
        if command.flag & FLAG_ONEWAY:
            return
        writer.frames.extend(pieces)
        writer.large_bytes += sum(map(len, pieces))
        if writer.large_bytes > _FLUSH_BYTES:
            self._endpoint.end_batch()
            writer.flush()

    def _respond_to_run(self, run: HandledRun, answers: RunAnswers, cause: Cause) -> None:
        """Count the requests of a run and collect their responses."""
        if isinstance(answers, bytes):
            seconds = self._loop.time() - run.received_at
            self._endpoint.meter.add_batch([run.route] * len(run), seconds, self._connection.remote_address, cause)
            self._writer.frames.append(answers)
        else:
            for command, answer in zip(run.commands(), answers, strict=True):
                self._respond(command, answer, cause)

"""Answers to the requests of one connection: at once, when a future is done, or in turn."""

import asyncio
import inspect
from asyncio import Task
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from rocketbroker.codec.remoting.handler import HELD, Answer, InTurn, RunAnswers, RunAnswersFuture
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command, RemotingCommand
from rocketbroker.transport.answers import encode_answer, error_answer, made_in_turn
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.frame_writer import FrameWriter
from rocketbroker.transport.peer_limits import HeldMemory
from rocketbroker.transport.request_run import HandledRun

# Each request may produce a large answer.
_MOST_AT_WORK = 4


class RequestTurns:
    """Run requests in order of arrival.

    Args:
        begin: starts the task that awaits the work and sends the answer.
        on_end: called when a request has ended.
    """

    def __init__(self, begin: Callable[[Command, Awaitable[Any]], "Task[None]"], on_end: Callable[[], None]) -> None:
        self._begin = begin
        self._on_end = on_end
        self._waiting: deque[tuple[Command, Awaitable[Any]]] = deque()
        self._at_work = 0
        # Bodies of queued and running requests.
        self.body_bytes = 0
        self.is_stopped = False

    def add(self, command: Command, work: Awaitable[Any]) -> None:
        """Start the work, or queue it; a coroutine does not run before its turn."""
        self.body_bytes += len(command.body)
        self._waiting.append((command, work))
        self.go_on()

    def begin(self, command: Command, work: Awaitable[Any], body_bytes: int) -> None:
        """Start work out of turn; its body counts until it ends."""
        self.body_bytes += body_bytes
        self._begin(command, work).add_done_callback(partial(self._ended_out_of_turn, work, body_bytes))

    def _ended_out_of_turn(self, work: Awaitable[Any], body_bytes: int, _task: "Task[None]") -> None:
        self.body_bytes -= body_bytes
        if inspect.iscoroutine(work):
            work.close()
        self._on_end()

    def go_on(self) -> None:
        """Start as many queued requests as may run."""
        while self._waiting and self._at_work < _MOST_AT_WORK and not self.is_stopped:
            command, work = self._waiting.popleft()
            self._at_work += 1
            self._begin(command, work).add_done_callback(partial(self._ended, command, work))

    def stop(self) -> None:
        """Start no more requests until ``resume``."""
        self.is_stopped = True

    def resume(self) -> None:
        """Start requests again after ``stop``."""
        self.is_stopped = False
        self.go_on()

    def clear(self) -> int:
        """Drop the queued requests and return their number; running ones continue."""
        count = len(self._waiting)
        while self._waiting:
            command, work = self._waiting.popleft()
            self._release(command, work)
        return count

    def _ended(self, command: Command, work: Awaitable[Any], _task: "Task[None]") -> None:
        self._at_work -= 1
        self._release(command, work)
        self.go_on()
        self._on_end()

    def _release(self, command: Command, work: Awaitable[Any]) -> None:
        self.body_bytes -= len(command.body)
        if inspect.iscoroutine(work):
            # Avoids the warning about a coroutine that never ran; no effect on one that has ended.
            work.close()


# Bytes of answers above which they are written before the read event ends.
_FLUSH_BYTES = 256 * 1024
# Pending requests of one connection, and bytes of their bodies, at which it is not read until half are answered.
_MOST_OPEN = 1024
_MOST_BODY_BYTES = 4 * 1024 * 1024
# Causes of a slow request.
_HANDLER = "its handler, or requests of the same read event, kept the event loop busy"
_DISK = "its answer waited for the disk, for slaves or for name servers"


class AnsweredConnection(Protocol):
    """Connection as its responder sees it."""

    remote_address: str
    last_read: float
    is_behind: bool

    def stop_reading(self) -> None:
        """Stop reading: too many requests are pending."""

    def read_again(self) -> None:
        """Read again, unless there is another reason not to."""


class Responder:
    """Sends the response of each request when it is ready.

    Args:
        connection: the connection that the requests come by.
        writer: takes the responses.
        endpoint: owns the tasks of the answers, and counts requests.
        memory: accounts for the bodies of pending requests.

    Attributes:
        turns: the requests that run in turn.
        is_full: so many requests are pending that the connection is not read.
    """

    def __init__(
        self, connection: AnsweredConnection, writer: FrameWriter, endpoint: Endpoint, memory: HeldMemory
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._endpoint = endpoint
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._open_requests = 0
        self.turns = RequestTurns(self._begin, self._ended)
        self.is_full = False

    def answer(self, command: Command, make: Callable[[], Answer]) -> None:
        """Answer a ``HELD`` request with what ``make`` returns or raises, as if its handler had; the caller flushes."""
        try:
            answer = InTurn(made_in_turn(make)) if self._connection.is_behind else make()
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
            self._more_open(1)
            answer.add_done_callback(partial(self._future_done, command))
        elif isinstance(answer, InTurn):
            self.turns.add(command, answer.work)
            self._more_open(1)
            if self.turns.body_bytes:
                self._memory.is_settled = False
        elif isinstance(answer, Awaitable):
            self.turns.begin(command, answer, body_bytes)
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

    def drop_waiting(self) -> None:
        """Drop the queued requests."""
        self.turns.stop()
        self._open_requests -= self.turns.clear()

    # -- pending requests

    def _more_open(self, requests: int) -> None:
        self._open_requests += requests
        is_full = self._open_requests >= _MOST_OPEN or self.turns.body_bytes > _MOST_BODY_BYTES
        if is_full and not self.is_full and self._endpoint.throttles:
            self.is_full = True
            self._connection.stop_reading()

    def _read_when_half_full(self) -> None:
        if self._open_requests <= _MOST_OPEN // 2 and self.turns.body_bytes <= _MOST_BODY_BYTES // 2:
            self.is_full = False
            self._connection.read_again()

    def _future_done(self, command: Command, future: asyncio.Future[Any]) -> None:
        """Answer with the result of a future; sends wait in futures because a task costs more."""
        self._open_requests -= 1
        if not future.cancelled():
            error = future.exception()
            self._respond(command, future.result() if error is None else error_answer(command.code, error), _DISK)
            self._writer.flush_soon()
        if self.is_full:
            self._read_when_half_full()

    def _run_done(self, run: HandledRun, future: RunAnswersFuture) -> None:
        """Answer all requests of a run with the result of a future."""
        self._open_requests -= len(run)
        if not future.cancelled():
            error = future.exception()
            self._respond_to_run(run, future.result() if error is None else run.failed(error), _DISK)
            self._writer.flush_soon()
        if self.is_full:
            self._read_when_half_full()

    def _begin(self, command: Command, work: Awaitable[Any]) -> asyncio.Task[None]:
        return self._endpoint.tasks.start(self._respond_when_done(command, work), f"request-{command.code}")

    async def _respond_when_done(self, command: Command, waiting: Awaitable[Any]) -> None:
        began = self._loop.time()
        try:
            answer = await waiting
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
            answer = error_answer(command.code, error)
        turn_s, work_s = began - command.received_at, self._loop.time() - began
        self._respond(command, answer, f"it waited {turn_s:.2f} s for its turn and took {work_s:.2f} s of work")
        self._writer.flush_soon()

    def _ended(self) -> None:
        self._open_requests -= 1
        if self.is_full:
            self._read_when_half_full()
        if not self._memory.is_settled:
            self._memory.settle(progressed=True)

    # -- responses

    def _respond(self, command: Command, answer: Any, cause: str) -> None:
        """Count a request and collect its response; every response but the bytes of a handler leaves here.

        ``cause`` says where the time of a slow request went.
        """
        connection, writer = self._connection, self._writer
        if isinstance(answer, list):
            pieces = answer
        else:
            pieces = [answer if isinstance(answer, bytes) else encode_answer(command, answer)]
        seconds = self._loop.time() - command.received_at
        self._endpoint.meter.add(command, pieces[0], seconds, connection.remote_address, cause)
        if command.flag & FLAG_ONEWAY:
            return
        writer.frames.extend(pieces)
        writer.large_bytes += sum(map(len, pieces))
        if writer.large_bytes > _FLUSH_BYTES:
            self._endpoint.end_batch()
            writer.flush()

    def _respond_to_run(self, run: HandledRun, answers: RunAnswers, cause: str) -> None:
        """Count the requests of a run and collect their responses."""
        if isinstance(answers, bytes):
            seconds = self._loop.time() - run.received_at
            self._endpoint.meter.add_batch([run.route] * len(run), seconds, self._connection.remote_address, cause)
            self._writer.frames.append(answers)
        else:
            for command, answer in zip(run.commands(), answers, strict=True):
                self._respond(command, answer, cause)

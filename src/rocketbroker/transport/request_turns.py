"""Requests of one connection that run in turn: a few at a time, the rest queued."""

import inspect
from asyncio import Task
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rocketbroker.codec.remoting.remoting_command import Command

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

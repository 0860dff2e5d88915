"""Requests of one connection that are answered in turn: a few at work, the others wait."""

import inspect
from asyncio import Task
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rocketbroker.codec.remoting.remoting_command import Command

# Each may make a large answer.
_MOST_AT_WORK = 4


class RequestTurns:
    """Begins requests in the order they came.

    Args:
        begin: starts the task that awaits the work and answers.
        on_end: called when a request is answered.
    """

    def __init__(self, begin: Callable[[Command, Awaitable[Any]], "Task[None]"], on_end: Callable[[], None]) -> None:
        self._begin = begin
        self._on_end = on_end
        self._waiting: deque[tuple[Command, Awaitable[Any]]] = deque()
        self._at_work = 0
        # Of the requests that wait and of those at work.
        self.body_bytes = 0
        self.is_stopped = False

    def add(self, command: Command, work: Awaitable[Any]) -> None:
        """Begin the work, or let it wait; a coroutine does not run before its turn."""
        self.body_bytes += len(command.body)
        self._waiting.append((command, work))
        self.go_on()

    def begin(self, command: Command, work: Awaitable[Any], body_bytes: int) -> None:
        """Begin work that waits for no turn; the body that it keeps counts until it ends."""
        self.body_bytes += body_bytes
        self._begin(command, work).add_done_callback(partial(self._ended_out_of_turn, work, body_bytes))

    def _ended_out_of_turn(self, work: Awaitable[Any], body_bytes: int, _task: "Task[None]") -> None:
        self.body_bytes -= body_bytes
        if inspect.iscoroutine(work):
            work.close()
        self._on_end()

    def go_on(self) -> None:
        """Begin what may begin now."""
        while self._waiting and self._at_work < _MOST_AT_WORK and not self.is_stopped:
            command, work = self._waiting.popleft()
            self._at_work += 1
            self._begin(command, work).add_done_callback(partial(self._ended, command, work))

    def stop(self) -> None:
        """Begin none until ``resume``."""
        self.is_stopped = True

    def resume(self) -> None:
        """Go on after ``stop``."""
        self.is_stopped = False
        self.go_on()

    def clear(self) -> int:
        """Forget the requests that wait; returns their number. Those at work go on."""
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
            # One whose turn did not come, or whose task ended before it began; no matter for one that has ended.
            work.close()

"""Waits between a put and its acknowledgement (CommitLog.handleDiskFlushAndHA).

A wait starts with a call and ends with a callback on the event loop. Callbacks instead of tasks: under SYNC_FLUSH there
is one wait per send.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Final, NamedTuple

from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus


class Acknowledgement(NamedTuple):
    """Outcome of a wait; ``reason`` says why the message is not acknowledged, empty otherwise."""

    status: PutMessageStatus
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True if the message is acknowledged."""
        return self.status is PutMessageStatus.PUT_OK


ACKNOWLEDGED: Final = Acknowledgement(PutMessageStatus.PUT_OK)
_LATE: Final = Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "the message was not acknowledged in time")

#: Takes the outcome; called once, on the event loop.
OnAcknowledged = Callable[[Acknowledgement], None]
#: Starts a wait.
Wait = Callable[[OnAcknowledged], None]
#: Starts a wait for a stored message.
PutWait = Callable[[PutMessageResult, OnAcknowledged], None]


class Acknowledgements:
    """Combines the waits of each message.

    Args:
        flushed: the wait for the disk (SYNC_FLUSH), ``None`` under ASYNC_FLUSH.
        replicated: the wait for slaves (SYNC_MASTER), ``None`` in other roles.

    Attributes:
        required: true if there are any.
        on_slaves: true if there is the wait for slaves.
    """

    def __init__(self, flushed: PutWait | None = None, replicated: PutWait | None = None) -> None:
        self._here = tuple(wait for wait in (flushed,) if wait is not None)
        self._everywhere = tuple(wait for wait in (flushed, replicated) if wait is not None)
        self.required = bool(self._everywhere)
        self.on_slaves = replicated is not None

    def wait_for(self, result: PutMessageResult, also: Sequence[Wait] = (), *, on_slaves: bool = False) -> Wait:
        """Return the wait for a stored message, with the most severe outcome.

        Args:
            result: result of the put.
            also: additional waits.
            on_slaves: true to wait for slaves too. As in RocketMQ, the copies that the broker makes wait for none.
        """
        waits = self._everywhere if on_slaves else self._here
        if also or len(waits) != 1:
            return partial(when_all, [*(partial(wait, result) for wait in waits), *also])
        return partial(waits[0], result)

    def acknowledged(self, result: PutMessageResult, also: Sequence[Wait] = ()) -> asyncio.Future[Acknowledgement]:
        """Start ``wait_for`` and return its outcome."""
        return outcome_of(self.wait_for(result, also))


def outcome_of(wait: Wait) -> asyncio.Future[Acknowledgement]:
    """Start a wait and return its outcome; cancelling the future drops the outcome."""
    future: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()
    wait(lambda outcome: None if future.done() else future.set_result(outcome))
    return future


def when_all(
    waits: Sequence[Wait], tell: OnAcknowledged, timeout_s: float = inf, late: Acknowledgement = _LATE
) -> None:
    """Call ``tell`` with the most severe outcome once all waits have ended.

    Args:
        waits: the waits, started in this order.
        tell: takes the outcome.
        timeout_s: time limit for all of them.
        late: outcome of waits that have not ended by then.
    """
    if waits:
        joined = _JoinedWaits(len(waits), tell, timeout_s, late)
        for wait in waits:
            wait(joined.ended)
    else:
        tell(ACKNOWLEDGED)


class _JoinedWaits:
    """Counts the waits of one message that have not ended."""

    def __init__(self, count: int, tell: OnAcknowledged, timeout_s: float, late: Acknowledgement) -> None:
        self._left = count
        self._tell = tell
        self._worst = ACKNOWLEDGED
        self._deadline = None
        if timeout_s < inf:
            self._deadline = asyncio.get_running_loop().call_later(timeout_s, self._time_out, late)

    def ended(self, outcome: Acknowledgement) -> None:
        if not self._left:
            return  # too late
        self._worst = max(self._worst, outcome, key=_severity)
        self._left -= 1
        if not self._left:
            if self._deadline is not None:
                self._deadline.cancel()
            self._tell(self._worst)

    def _time_out(self, late: Acknowledgement) -> None:
        self._left = 0
        self._tell(max(self._worst, late, key=_severity))


def _severity(outcome: Acknowledgement) -> int:
    return outcome.status.value

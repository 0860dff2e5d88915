"""Dispatch of appended messages: queue entries, index keys, wake-ups (CommitLogDispatcher, MessageArrivingListener).

The append path supplies all fields, so nothing is read back. ``ReputMessageService`` fills queues itself where the log
is ahead of them, and passes on the keys.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rocketbroker.common.errors import StoreError
from rocketbroker.store.index.index_service import AT_ONCE, BATCH_MESSAGES, IndexService
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.dispatch_request import DispatchRequest, DispatchRun, IndexKeys

log = logging.getLogger(__name__)


class MessageArrivingListener(Protocol):
    """Listener that is notified as soon as consumers can read messages."""

    @property
    def waiting(self) -> bool:
        """True if anybody waits; saves the calls otherwise."""

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Handle a message that became readable; the queue now ends at ``max_offset``."""


class NoListener:
    """Listener of a store that nobody waits for."""

    waiting = False

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Do nothing."""


RETRY_S = 5.0
# Keys that may wait for the index while it cannot be written: about 30 MB.
MOST_WAITING = 1_500_000


class CommitLogDispatcher:
    """Dispatches messages to their queue, the index and the listeners."""

    def __init__(self, index_service: IndexService | None, listener: MessageArrivingListener) -> None:
        self.index_service = index_service
        self._listeners: tuple[MessageArrivingListener, ...] = (listener,)
        # Error of the last failed index write, and the time of the next try.
        self._index_error: StoreError | None = None
        self._index_retry_at = 0.0
        self._is_index_held = False
        self._goes_on = False

    def also_notify(self, *listeners: MessageArrivingListener) -> None:
        """Add listeners (NotifyMessageArrivingListener); each message asks all of them whether they wait."""
        self._listeners += listeners

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Make a batch of messages readable, oldest first; the batch may be empty.

        Raises:
            StoreFullError: The disk has no room for a queue's entries; the requests before it are dispatched.
            StoreError: It failed for another reason; or the index backlog is full, and then all messages are
                dispatched.
        """
        listeners = self._listeners
        try:
            for queue, queue_offset, physical_offset, size, tags_code, _, _ in requests:
                if queue_offset >= queue.max_offset:
                    queue.put(queue_offset, physical_offset, size, tags_code)
                    for listener in listeners:
                        if listener.waiting:
                            listener.arriving(queue.topic, queue.queue_id, queue_offset + 1, tags_code)
        except BaseException:
            # The rest is dispatched again, and would be indexed twice.
            self._index([request for request in requests if request[1] < request[0].max_offset])
            raise
        self._index(requests)
        if self._index_error is not None:
            self._check_backlog()

    def dispatch_run(self, run: DispatchRun) -> None:
        """Make messages readable that follow the end of their queue.

        Raises:
            StoreFullError: The disk has no room for all of their entries; none is dispatched.
            StoreError: It failed for another reason, or the index backlog is full; none is dispatched.
        """
        if self._index_error is not None:
            self._check_backlog()
        queue = run.queue
        queue.put_entries(run.queue_offset, run.entries)
        self.entered(queue, run.queue_offset, run.tags_codes())
        if self.index_service is not None:
            self.index_service.add_run(run)
            self._index_when_many()

    def entered(self, queue: ConsumeQueueInterface, queue_offset: int, tags_codes: Iterable[int]) -> None:
        """Notify the listeners of consecutive messages that are in their queue."""
        waiting: list[MessageArrivingListener] = []
        for listener in self._listeners:
            if listener.waiting:
                waiting.append(listener)  # noqa: PERF401 - a comprehension is a call for each run
        if waiting:
            for end, tags_code in enumerate(tags_codes, queue_offset + 1):
                for listener in waiting:
                    listener.arriving(queue.topic, queue.queue_id, end, tags_code)

    def index_keys(self, keys: IndexKeys) -> None:
        """Index messages that are in their queues already, oldest first.

        Raises:
            StoreError: The index backlog is full, and these keys were not added.
        """
        if self._index_error is not None:
            self._check_backlog()
        if self.index_service is not None:
            self.index_service.add_keys(keys)
            self._index_when_many()

    def _index(self, requests: Sequence[DispatchRequest]) -> None:
        if self.index_service is not None and self.index_service.add(requests) >= BATCH_MESSAGES:
            self.enter_keys()

    def _index_when_many(self) -> None:
        if self.index_service is not None and self.index_service.waiting >= BATCH_MESSAGES:
            self.enter_keys()

    def enter_keys(self) -> None:
        """Enter the waiting keys; leave many of them to later turns of the event loop, a part to each.

        A batch of 4 MiB may have two million keys, which take as many microseconds.
        """
        if self.index_service is None or self._goes_on:
            return
        if self.index_service.waiting <= AT_ONCE:
            self.flush_index()
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # on a thread, or before the store serves
            self.flush_index()
        else:
            self._goes_on = True
            loop.call_soon(self._enter_part, loop)

    def _enter_part(self, loop: asyncio.AbstractEventLoop) -> None:
        # Before the part: an error that nobody foresaw must not end the entering of keys.
        self._goes_on = False
        self.flush_index(1)
        if self.index_service is not None and self.index_service.waiting >= BATCH_MESSAGES and self._may_enter():
            self._goes_on = True
            loop.call_soon(self._enter_part, loop)

    def _may_enter(self) -> bool:
        """Return true if keys may be entered now: the index is neither held nor waits for a retry after an error."""
        return not self._is_index_held and time.monotonic() >= self._index_retry_at

    def flush_index(self, most_parts: int = sys.maxsize) -> None:
        """Enter the waiting keys, or some parts of them; after an error, not before ``RETRY_S`` have passed."""
        if self.index_service is None or not self._may_enter():
            return
        try:
            self.index_service.flush(most_parts)
        except StoreError as error:
            # The keys are kept and retried; consumers are still served.
            self._index_retry_at = time.monotonic() + RETRY_S
            self._index_error = error
            log.exception(
                "index: messages are stored and readable, but cannot be indexed yet; next try in %g s", RETRY_S
            )
        else:
            self._index_error = None

    @contextmanager
    def index_held(self) -> Iterator[None]:
        """Enter the waiting keys, and no others until the ``with`` block ends: the index is changed on a thread."""
        self.flush_index()
        self._is_index_held = True
        try:
            yield
        finally:
            self._is_index_held = False

    def _check_backlog(self) -> None:
        """Reject sends once no more keys may wait."""
        if self.index_service is not None and self.index_service.waiting >= MOST_WAITING:
            self.flush_index(1)
            if self._index_error is not None:
                raise StoreError(
                    f"{self.index_service.waiting} keys wait for the index in "
                    f"{self.index_service.directory} (storePathIndex); the limit is {MOST_WAITING}: {self._index_error}"
                ) from self._index_error

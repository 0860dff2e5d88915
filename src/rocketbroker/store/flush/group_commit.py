"""Says when a sync of the log begins, so that one serves many sends (GroupCommitService).

Senders that wait for their answers send anew once a sync has answered them, one after the other. A sync that begins
with the first of them serves few, and answers few: each later one then serves as few. So a sync is held back until as
many wait as the ones before had, or for 3 ms: less than what is won where the processors are the limit, and nothing for
a sender that is alone.
"""

import asyncio
from collections.abc import Callable
from typing import Final

HOLD_S: Final = 0.003
# How fast the number of senders that are awaited falls when fewer come.
_DECAY: Final = 16


class GroupCommit:
    """Begins syncs; all calls are of the event loop.

    Args:
        begin: begins a sync.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        # So many waited when one of the last syncs was done, those that it served included.
        self._siblings = 0
        self._held: asyncio.TimerHandle | None = None

    def ask(self, waiting: int) -> None:
        """Have a sync begin once the loop has handled all that it has read, or when more than ``waiting`` sends wait.

        At once the thread of the sync would compete with the loop for the interpreter, and sync half of what is about
        to come.
        """
        loop = asyncio.get_running_loop()
        if waiting >= self._siblings:
            loop.call_soon(self._begin)
        else:
            self._held = loop.call_later(HOLD_S, self._hold_is_over)

    def joined(self, waiting: int) -> None:
        """One more waits: begin when these are all that are awaited."""
        if self._held is not None and waiting >= self._siblings:
            self._held.cancel()
            self._held = None
            # Those that were read together with it come as well.
            asyncio.get_running_loop().call_soon(self._begin)

    def served(self, waiting: int) -> None:
        """A sync is done for which ``waiting`` sends waited, those that came while it ran included."""
        # Slowly, since where processors are the limit many are late, and a group that shrinks once stays small.
        self._siblings = max(waiting, self._siblings - max(self._siblings // _DECAY, 1))

    def _hold_is_over(self) -> None:
        self._held = None
        self._begin()

"""Start of each sync of the log, chosen so that one sync serves many sends (GroupCommitService).

Synchronous senders send again once a sync has answered them, one after the other. A sync that starts with the first of
them serves and answers few, and so does each later one. So a sync is delayed until as many sends wait as before, for
3 ms at most. That costs less than it gains where processors are the limit, and a lone sender never waits.
"""

import asyncio
from collections.abc import Callable
from typing import Final

HOLD_S: Final = 0.003
# Divisor of the step by which the number of awaited senders falls when fewer come.
_DECAY: Final = 16


class GroupCommit:
    """Starts syncs; all calls are on the event loop.

    Args:
        begin: starts a sync.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        # Sends that waited when one of the last syncs finished, including those that it served.
        self._siblings = 0
        self._held: asyncio.TimerHandle | None = None

    def ask(self, waiting: int) -> None:
        """Start a sync once the loop has handled what it has read; delay it while fewer sends wait than before.

        A sync that started at once would compete with the loop for the interpreter, and miss half of the sends about to
        come.
        """
        loop = asyncio.get_running_loop()
        if waiting >= self._siblings:
            loop.call_soon(self._begin)
        else:
            self._held = loop.call_later(HOLD_S, self._hold_is_over)

    def joined(self, waiting: int) -> None:
        """Note one more wait, and start the delayed sync once all awaited sends have joined."""
        if self._held is not None and waiting >= self._siblings:
            self._held.cancel()
            self._held = None
            # Sends that were read together with it join too.
            asyncio.get_running_loop().call_soon(self._begin)

    def served(self, waiting: int) -> None:
        """Note a finished sync and the number of sends that waited, including those that came while it ran."""
        # Shrink slowly: where processors are the limit many sends are late, and a group that shrinks once stays small.
        self._siblings = max(waiting, self._siblings - max(self._siblings // _DECAY, 1))

    def _hold_is_over(self) -> None:
        self._held = None
        self._begin()

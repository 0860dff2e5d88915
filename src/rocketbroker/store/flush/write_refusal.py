"""Standing reasons to reject writes (DefaultMessageStore.checkStoreStatus, RunningFlags)."""

import threading
from enum import Enum

from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus


class Refusal(Enum):
    """Standing reasons to reject writes, most severe first; the part that sets one clears it."""

    SHUTTING_DOWN = PutMessageStatus.SHUTTING_DOWN
    NOT_STARTED = PutMessageStatus.NOT_STARTED
    SLAVE = PutMessageStatus.SLAVE
    READ_ONLY = PutMessageStatus.READ_ONLY
    DISK_FULL = PutMessageStatus.DISK_FULL
    NOT_DISPATCHED = PutMessageStatus.NOT_DISPATCHED


class StandingRefusals:
    """Current reasons to reject every put; each has an owner that sets and clears it, from any thread.

    Attributes:
        current: put result for the most severe reason, ``None`` while messages are accepted.
    """

    __slots__ = ("_lock", "_reasons", "current")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[Refusal, str] = {}
        self.current: PutMessageResult | None = None

    def set(self, refusal: Refusal, reason: str) -> None:
        """Reject every put from now on; ``reason`` names the cause, the measured value and the setting to change."""
        with self._lock:
            self._reasons[refusal] = reason
            self._choose()

    def clear(self, refusal: Refusal) -> None:
        """Clear a reason; puts are accepted again once none is left."""
        with self._lock:
            self._reasons.pop(refusal, None)
            self._choose()

    def reason(self, refusal: Refusal) -> str:
        """Return the text of a reason, empty while it is not set."""
        return self._reasons.get(refusal, "")

    def only(self, refusal: Refusal) -> bool:
        """Return true if this is the only reason set."""
        return self._reasons.keys() == {refusal}

    def _choose(self) -> None:
        worst = next((refusal for refusal in Refusal if refusal in self._reasons), None)
        self.current = None if worst is None else PutMessageResult(worst.value, reason=self._reasons[worst])

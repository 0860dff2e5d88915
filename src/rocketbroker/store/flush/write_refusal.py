"""Why the store takes no message now (DefaultMessageStore.checkStoreStatus, RunningFlags)."""

import threading
from enum import Enum

from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus


class Refusal(Enum):
    """A cause that lasts until who found it says that it is over; the gravest first."""

    SHUTTING_DOWN = PutMessageStatus.SHUTTING_DOWN
    NOT_STARTED = PutMessageStatus.NOT_STARTED
    READ_ONLY = PutMessageStatus.READ_ONLY
    DISK_FULL = PutMessageStatus.DISK_FULL
    NOT_DISPATCHED = PutMessageStatus.NOT_DISPATCHED


class StandingRefusals:
    """The causes for which every put is refused now; each has an owner that sets and clears it, from any thread.

    Attributes:
        current: the result of a put for the gravest of them, ``None`` while messages are taken.
    """

    __slots__ = ("_lock", "_reasons", "current")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[Refusal, str] = {}
        self.current: PutMessageResult | None = None

    def set(self, refusal: Refusal, reason: str) -> None:
        """Refuse every put from now on; ``reason`` names the cause, the measured value and the setting that governs."""
        with self._lock:
            self._reasons[refusal] = reason
            self._choose()

    def clear(self, refusal: Refusal) -> None:
        """End a cause; puts go on once none is left."""
        with self._lock:
            self._reasons.pop(refusal, None)
            self._choose()

    def reason(self, refusal: Refusal) -> str:
        """The text of one cause, empty while it is not there."""
        return self._reasons.get(refusal, "")

    def only(self, refusal: Refusal) -> bool:
        """Whether this cause and no other is there."""
        return self._reasons.keys() == {refusal}

    def _choose(self) -> None:
        gravest = next((refusal for refusal in Refusal if refusal in self._reasons), None)
        self.current = None if gravest is None else PutMessageResult(gravest.value, reason=self._reasons[gravest])

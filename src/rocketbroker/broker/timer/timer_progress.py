"""``config/timerProgress.json``: progress of reading the timer's queue, and the delivered messages.

Apache RocketMQ's ``timercheck`` has only the time up to which all is delivered. That is not enough after the clock was
set back: messages sent then are due before that time.
"""

from collections.abc import Iterable
from pathlib import Path

from rocketbroker.broker.persist.config_manager import ConfigManager, OnPersist, encode_file
from rocketbroker.broker.persist.durable_progress import DurableProgress, LogEnds
from rocketbroker.broker.timer.waiting_by_topic import WaitingByTopic
from rocketbroker.codec.storefile.timer_slots import Delivered, TimerProgressFile, with_delivered


class TimerProgress(ConfigManager[TimerProgressFile]):
    """Progress of the timer, and its file.

    Args:
        log: the ends of the log; progress is written once its copies are on disk.

    Attributes:
        waiting: undelivered messages by topic.
    """

    file_name, contents = "timerProgress.json", TimerProgressFile

    def __init__(self, path: Path, log: LogEnds, on_persist: OnPersist | None = None) -> None:
        super().__init__(path, on_persist)
        self.file = TimerProgressFile()
        self.delivered: Delivered = ()
        self.waiting = WaitingByTopic()
        self._durable = DurableProgress[Delivered](log, ())
        self._changed = False

    @property
    def durable(self) -> Delivered:
        """Deliveries whose copies are on disk."""
        return self._durable.value

    @property
    def is_behind(self) -> bool:
        """True if some copies are not on disk yet."""
        return self._durable.is_behind

    def deliver(self, before_ms: int, before_offset: int) -> None:
        """Note that messages before a slot time with an offset below ``before_offset`` are delivered."""
        self.delivered = with_delivered(self.delivered, before_ms, before_offset)
        self._durable.made(self.delivered)

    def advance(self) -> None:
        """Set ``durable`` to the deliveries whose copies are on disk."""
        self._changed |= self._durable.advance()

    def took_in(self, queue_offset: int, slot_entries: dict[int, int]) -> None:
        """Note the content of the slot files."""
        self.file.queue_offset, self.file.slot_entries = queue_offset, slot_entries
        self._changed = True

    def begin(self, delivered: Iterable[tuple[int, int]], end: int, precision_ms: int, roll_window_ms: int) -> None:
        """Continue from earlier deliveries, cut at ``end``, the end of the queue."""
        self.delivered = ()
        for before_ms, before_offset in delivered:
            self.delivered = with_delivered(self.delivered, before_ms, min(before_offset, end))
        self._durable.replace(self.delivered)
        # A restart of the service in this process continues from here.
        self.found = True
        self.file.precision_ms, self.file.roll_window_ms = precision_ms, roll_window_ms
        self._changed = True

    def follow(self, before_ms: int, before_offset: int, precision_ms: int, roll_window_ms: int) -> None:
        """Take over the deliveries of a slave's master, and schedule a write if they are new.

        The widths are those of this broker, unless its own slot files have others.
        """
        delivered = with_delivered(self.delivered, before_ms, before_offset)
        if not before_offset or delivered == self.delivered:
            return
        self.delivered = delivered
        self._durable.replace(delivered)
        # What the master has delivered of those that this broker counted is unknown.
        self.waiting.restore({}, 0)
        self.found = True
        self.file.precision_ms = self.file.precision_ms or precision_ms
        self.file.roll_window_ms = self.file.roll_window_ms or roll_window_ms
        self.persist()

    def forget(self, precision_ms: int, roll_window_ms: int) -> None:
        """Forget all deliveries and slot files, and schedule a write; the widths are as in ``follow``."""
        self.delivered = ()
        self._durable.replace(())
        self.waiting.restore({}, 0)
        file = self.file
        file.queue_offset, file.slot_entries = 0, {}
        file.precision_ms = file.precision_ms or precision_ms
        file.roll_window_ms = file.roll_window_ms or roll_window_ms
        self.persist()

    def flush(self) -> None:
        """Write the file if anything has changed."""
        self.advance()
        if self._changed:
            self._changed = False
            self.persist()

    def encode(self) -> bytes:
        """Return the file's content."""
        self.file.delivered = list(self._durable.value)
        self.file.waiting, self.file.counted_to = self.waiting.counts, self.waiting.counted_to
        return encode_file(self.file)

    def count(self, file: TimerProgressFile) -> int:
        """Return 1: even without slot files the table is not empty."""
        return 1

    def take(self, file: TimerProgressFile) -> None:
        """Continue from a file; ``begin`` checks it against the queue."""
        self.file = file
        self.waiting.restore(file.waiting, file.counted_to)
        self.delivered = tuple(file.delivered)
        self._durable.replace(self.delivered)

"""Options for reading that both formats parse alike: those of streams, those of batches, and the properties to keep."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Final, TypeVar

from rocketbroker.analytics.spark.offset_options import LATEST, queue_offsets, starting_bounds
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.common.errors import CheckpointError, ConfigError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_STREAM_OPTIONS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BATCH_OPTIONS: Final = ("endingOffsets", "endingTimestamp")
_DELAY_S: Final = 900.0
# Spark asks an idle stream for its end every 10 ms. Each time costs a request per queue, or a list of the log files.
_IDLE_POLL_S: Final = 0.1
#: Meaning of the options that mean the same in both formats.
DELAY_OPTION: Final = {"maxTriggerDelay": "longest wait for minOffsetsPerTrigger, such as 20s (15m)"}
PROPERTIES_OPTION: Final = {
    "includeProperties": "names of the properties in the column properties, separated by commas (all)"
}


def check_batch_options(given: OptionValues) -> None:
    """Raise :class:`ConfigError` for an option that a batch cannot have."""
    for name in filter(given.__contains__, _STREAM_OPTIONS):
        raise ConfigError(
            f"{name} is {given.text(name)!r}: it is for readStream; limit a batch by endingOffsets or endingTimestamp"
        )
    starts = starting_bounds(given)
    if LATEST in {starts.default.offset, *(each.offset for each in queue_offsets(starts))}:
        raise ConfigError(
            f"startingOffsets is {given.text('startingOffsets')!r}: latest is for readStream, since a batch ends "
            "there; give earliest, or an offset from 0"
        )


def check_stream_options(given: OptionValues) -> None:
    """Raise :class:`ConfigError` for an option that a stream cannot have."""
    for name in filter(given.__contains__, _BATCH_OPTIONS):
        raise ConfigError(f"{name} is {given.text(name)!r}: a stream has no end; read a batch by spark.read")


def kept_properties(given: OptionValues) -> frozenset[str] | None:
    """Return the names of the properties to keep, all if None."""
    if "includeProperties" not in given:
        return None
    names = given.names("includeProperties")
    if not names:
        raise ConfigError(f"includeProperties names no property; give {PROPERTIES_OPTION['includeProperties']}")
    return names


def report_loss(text: str, *, fail: bool) -> None:
    """Raise :class:`CheckpointError` for messages that were removed unread, or log them (option failOnDataLoss)."""
    if fail:
        raise CheckpointError(f"{text}; set the option failOnDataLoss=false to continue after them")
    logger.warning("%s; the query continues after them (failOnDataLoss=false)", text)


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Size of a micro-batch; ``None`` for no limit."""

    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay_s: float = _DELAY_S


def trigger_limits(given: OptionValues) -> TriggerLimits:
    """Return the limits of micro-batches."""
    most = given.number("maxOffsetsPerTrigger", 0) or None
    least = given.number("minOffsetsPerTrigger", 0) or None
    if most is not None and least is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, {most}; lower it")
    if "maxTriggerDelay" in given and least is None:
        raise ConfigError("maxTriggerDelay has no effect without minOffsetsPerTrigger; give both")
    return TriggerLimits(
        most, given.bytes("maxBytesPerTrigger", 0) or None, least, given.seconds("maxTriggerDelay", _DELAY_S)
    )


class TriggerDelay:
    """Delays of a stream: a micro-batch waits for minOffsetsPerTrigger, and the next poll of an idle stream for 100 ms.

    As in Spark's Kafka source, the first micro-batch does not wait. With many queues a poll takes longer than 100 ms:
    then the pause is as long, so that an idle stream takes half a core at most.
    """

    def __init__(self, limits: TriggerLimits) -> None:
        self._limits = limits
        self._triggered_at = self._next_poll = float("-inf")

    @property
    def least(self) -> int:
        """Messages without which a micro-batch has to wait now; 0 if it need not wait."""
        is_over = monotonic() - self._triggered_at >= self._limits.max_delay_s
        return 0 if is_over else self._limits.min_messages or 0

    def poll(self, start: T, find: Callable[[], T]) -> T:
        """Return the end that ``find`` finds; it is ``start`` if there is nothing to read yet.

        Wait before that if the last poll found nothing.
        """
        sleep(max(self._next_poll - monotonic(), 0))
        polled_at = monotonic()
        end = find()
        now = monotonic()
        if end == start:
            self._next_poll = now + max(_IDLE_POLL_S, now - polled_at)
        else:
            self._triggered_at = now
        return end

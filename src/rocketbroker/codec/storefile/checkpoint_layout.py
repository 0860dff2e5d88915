"""Checkpoints of store and timer (org.apache.rocketmq.store.StoreCheckpoint, timer.TimerCheckpoint).

checkpoint         := int64 physicMsgTimestamp, int64 logicsMsgTimestamp, int64 indexMsgTimestamp,
                      int64 masterFlushedOffset, int64 confirmPhyOffset, int64 logicsPhysicalOffset,
                      zeros to 4096
config/timercheck  := int64 lastReadTimeMs, int64 lastTimerLogFlushPos, int64 lastTimerQueueOffset,
                      int64 masterTimerQueueOffset, int64 stateVersion, int64 timestamp, int64 counter,
                      zeros to 4096
"""

from struct import Struct
from typing import Final, NamedTuple

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.common.errors import CodecError

#: Bytes of either file on disk.
CHECKPOINT_FILE_SIZE: Final = 4096
CHECKPOINT: Final = Struct(">qqqqqq")
TIMER_CHECKPOINT: Final = Struct(">qqqqqqq")


class StoreCheckpoint(NamedTuple):
    """Progress of the store's flushes. Timestamps are store times in ms, offsets are of the CommitLog.

    Releases before 5.5.0 leave ``logics_physical_offset`` at 0, and 4.x both offsets before it as well.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    def encode(self) -> bytes:
        """Return the whole file, 4096 bytes."""
        return CHECKPOINT.pack(*self).ljust(CHECKPOINT_FILE_SIZE, b"\0")


class TimerCheckpoint(NamedTuple):
    """Progress of the timer, and the data version of its metrics."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Return the 56 bytes that an answer to GET_TIMER_CHECK_POINT carries and the file begins with."""
        return TIMER_CHECKPOINT.pack(*self)


def decode_checkpoint(buffer: ReadableBuffer) -> StoreCheckpoint:
    """Return the checkpoint in ``buffer``, which holds at least its 48 bytes."""
    if len(buffer) < CHECKPOINT.size:
        raise CodecError(f"checkpoint has {len(buffer)} bytes instead of {CHECKPOINT.size}")
    return StoreCheckpoint(*CHECKPOINT.unpack_from(buffer))


def decode_timer_checkpoint(buffer: ReadableBuffer) -> TimerCheckpoint:
    """Return the timer checkpoint in ``buffer``, which holds at least its 56 bytes."""
    if len(buffer) < TIMER_CHECKPOINT.size:
        raise CodecError(f"timer checkpoint has {len(buffer)} bytes instead of {TIMER_CHECKPOINT.size}")
    return TimerCheckpoint(*TIMER_CHECKPOINT.unpack_from(buffer))

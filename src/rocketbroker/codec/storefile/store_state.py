"""State of a store after its last broker, as far as audit rules depend on it."""

from dataclasses import dataclass
from typing import Final

from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint, decode_checkpoint
from rocketbroker.common.errors import CodecError

# Messages stored at the same time may be on both sides of a flush.
_SAFETY_MS: Final = 3000
_ALWAYS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StoreState:
    """State of a store: ``unclean`` if the abort file exists, ``holders`` the processes that have the store locked.

    Messages stored three seconds before the times of the checkpoint were on disk when it was written; after a clean
    stop all were.
    """

    unclean: bool
    holders: tuple[int, ...]
    checkpoint: StoreCheckpoint

    @classmethod
    def of(cls, unclean: bool, holders: tuple[int, ...], checkpoint: bytes | None) -> "StoreState":
        """Return the state of a store by its checkpoint; without a sound one, nothing is known to be on disk."""
        try:
            return cls(unclean, holders, decode_checkpoint(checkpoint or b""))
        except CodecError:
            return cls(unclean, holders, StoreCheckpoint())

    @property
    def is_open(self) -> bool:
        """True while a broker has the store open."""
        return bool(self.holders)

    @property
    def known_ms(self) -> int:
        """Store time (ms) up to which all messages were certainly on disk in log and queues."""
        known = min(self.checkpoint.physic_msg_timestamp, self.checkpoint.logics_msg_timestamp)
        return known - _SAFETY_MS if self.unclean else _ALWAYS

    @property
    def index_known_ms(self) -> int:
        """Store time (ms) up to which all keys were certainly on disk in the index."""
        known = self.checkpoint.index_msg_timestamp - _SAFETY_MS
        return min(self.known_ms, known) if self.unclean else _ALWAYS

    def is_known(self, store_timestamp: int) -> bool:
        """Return true if log and queues certainly had a message of this store time (ms) on disk."""
        return store_timestamp <= self.known_ms

    def is_index_known(self, store_timestamp: int) -> bool:
        """Return true if the index certainly had the keys of such a message on disk."""
        return store_timestamp <= self.index_known_ms

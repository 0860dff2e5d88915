"""Parts of a store of Apache's that this broker cannot read, recognised by their files.

A start beside them would not fail: it would find no tables or no log, and begin empty ones. So it is refused before
anything is written. Of messages that consumers popped only a warning is possible: their check points lie in the log, in
queues that a broker without POP fills (as timer messages fall due) and never reads.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rocketbroker.codec.message.topic_validator import SYSTEM_TOPIC_PREFIX
from rocketbroker.common.errors import StoreError

# Each RocksDB database has this file, which names its manifest.
_ROCKSDB_MARK: Final = "CURRENT"
_REVIVE_TOPIC: Final = SYSTEM_TOPIC_PREFIX + "REVIVE_LOG_"
#: Group whose consumer offsets are the progress of POP through the revive topic (PopAckConstants).
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"


class ForeignPart(NamedTuple):
    """A folder that this broker cannot read; ``problem`` says what is in it and what to do."""

    path: Path
    problem: str


def foreign_parts(root: Path) -> Iterator[ForeignPart]:
    """Return the parts of a store folder that this broker cannot read."""
    config_dir = root / "config"
    for mark in sorted(config_dir.glob(f"*/{_ROCKSDB_MARK}")):
        yield ForeignPart(
            mark.parent,
            "is a RocksDB database (storeType=defaultRocksDB, or configManagerVersion=v2), which this broker cannot "
            "read: topics, groups or offsets are in it. Write them to topics.json, subscriptionGroup.json and "
            f"consumerOffset.json in {config_dir} by rocksDBConfigToJson of Apache's mqadmin, then move this folder "
            "away (docs/how-to/migrate-a-store.md)",
        )
    for data in sorted(root.glob("dledger-*/data")):
        if any(data.iterdir()):
            yield ForeignPart(
                data,
                "is the log of a DLedger group (enableDLegerCommitLog=true), which this broker cannot read. Let "
                "Apache's brokers serve until its messages are consumed, or replay them with a client to this broker "
                "with an empty store (docs/how-to/migrate-a-store.md)",
            )


def check_readable(root: Path) -> None:
    """Check that this broker can read all parts of a store.

    Raises:
        StoreError: It cannot; the text names each part.
    """
    try:
        texts = [f"{part.path} {part.problem}" for part in foreign_parts(root)]
    except OSError as error:
        raise StoreError(f"{root} (storePathRootDir) cannot be read: {error}") from error
    if texts:
        raise StoreError("; ".join(texts))


def open_pops(ends: Mapping[tuple[str, int], int], progress: Callable[[str, int], int]) -> Iterator[str]:
    """Return a text for each queue of check points that POP has not read to its end.

    Args:
        ends: the ends of all queues, by topic and queue number.
        progress: returns the consumer offset of ``REVIVE_GROUP`` in a queue, -1 without one.
    """
    for (topic, queue_id), end in sorted(ends.items()):
        # Apache's broker commits the offset of the last record that it has dealt with, not the one after it.
        unread = end - progress(topic, queue_id) - 1 if topic.startswith(_REVIVE_TOPIC) else 0
        if unread > 0:
            yield (
                f"queue {queue_id} of {topic} has {unread:,} records of messages that consumers popped; those that "
                "were not acknowledged are not delivered by this broker, which has no POP yet. Start Apache's broker "
                "on the store, and stop it once its consumers have acknowledged all"
            )

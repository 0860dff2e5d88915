"""Stores that copy the bytes of another store's log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.replica_log import ReplicaLog
from tests.support.stores import message


def log_bytes(store: MessageStore) -> bytes:
    """Return all bytes of a store's log, from its first file on."""
    log = store.commit_log.queue
    return b"".join(bytes(file.buffer[: file.wrote]) for file in log.files)


def fill(store: MessageStore, prefix: str, count: int) -> None:
    """Put messages into two queues of Topic and one of Other; their records roll files now and then."""
    for number in range(count):
        topic, queue_id = ("Other", 0) if number % 3 == 2 else ("Topic", number % 3)
        body = f"{prefix}{number} ".encode() + bytes(number * 977 % 9000)
        properties = {"UNIQ_KEY": f"{prefix}{number}", "TAGS": f"t{number % 2}"}
        store.appender.put_message(message(body, topic, queue_id, properties=properties))
    store.appender.dispatch()


@asynccontextmanager
async def replica(store: MessageStore) -> AsyncIterator[ReplicaLog]:
    """Start a store that copies another's log, and stop both."""
    await store.start()
    found = store.make_replica_log()
    await found.start()
    try:
        yield found
    finally:
        await found.stop()
        await store.stop()

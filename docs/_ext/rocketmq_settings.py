"""Page of RocketMQ's settings and their state here."""

import re
from collections import defaultdict
from collections.abc import Iterator

from docs._ext.configuration import SECTIONS
from rocketbroker.common.config import known_properties
from rocketbroker.common.config.fields import fields_by_name
from rocketbroker.common.config.known_properties import is_refused_setting

_INTRODUCTION = """\
# Settings of RocketMQ 5.5.0 and their state here

For operators who bring a `broker.conf` or `namesrv.conf` of Apache RocketMQ: find out which of its lines have an
effect. The page is generated from the settings that the servers read.

1. Start the server with your file. It rejects unknown names and invalid values, and shows the nearest name or the
   range. It warns about each setting of RocketMQ that has no effect here.
2. Look up the names in the warnings below, by part of RocketMQ.
3. Read [Configuration](../reference/configuration.md) for ranges, units and the settings that RocketMQ does not have.

Settings that turn on access control or TLS are rejected, because the server would run as if they were off
([Security](../operations/security.md#settings-that-are-rejected)). So are those that change where messages are stored,
how they are replicated or who may consume them.
"""

# Parts of RocketMQ by patterns of setting names; the first match counts.
_PARTS = {
    "Access control and TLS": "^acl ^auth ^initAuth ^innerClientAuth ^migrateAuth ^userCache ^stateful ^tls ^useTLS",
    "RocksDB": "rocksdb memTable bottomMost combineCQ ^storeType$ kvcq dispatchCq transferMetadata",
    "Lite topics and LMQ": "lite[A-Z] lmq MultiDispatch ^maxClientEventCount$",
    "POP and load balancing by the broker": (
        "pop revive ^appendA?ck ackThread AckQueue ckRePut loadBalance ackMessage SeparateRetryQueue RetryTopicV "
        "MessageRequestMode MessageFilter realTimeNotify LongAwaitingAck priorityOrder"
    ),
    "Replication, controller and DLedger": (
        "slave ^ha[A-Z] inSync dLeger dLedger controller elect epoch syncState replica SyncBroker syncMaster raft "
        "syncFromLast escape preOnline asyncLearner preferredLeader brokerIdentity duplication offsetCheckIn "
        "cleanOfflineBroker brokerHeartbeat brokerNotActive sendHeartbeat maxHaTransfer"
    ),
    "Tiered and object storage": "tiered objectStore readAheadCache readAheadMessage commitLogRolling GroupCommit",
    "Metrics, statistics and traces": "metric stat[s]? commercial printChannel isolateLog highSpeed estimateAccum",
    "Timer message files of RocketMQ": "timer",
    "Thread pools, executors and their queues": (
        "thread PoolQueue QueueCapacity QueueSize Semaphore waitTimeMillsIn PooledByteBuf WorkerGroup Epoll "
        "FastChannel Reput asyncSend dispatchFromSender Concurrently enableAsync AsyncDeliver"
    ),
    "Memory, locks and warming of mapped files": (
        "swap warm transientStore lock ^commitCommit ^commitInterval withoutMmap FileChannel BufferInStore "
        "sharedByteBuffer wakeCommit ByHeap readAhead hotRatio"
    ),
    "Connections of clients": "^client[A-Z] ^connectTimeout ^disableCallback ^disableNetty ForGoAway channelNotActive",
    "Cold data": "cold",
    "Compaction": "compact maxOffsetMapSize",
    "Extensions of queues and bit maps": "ConsumeQueueExt bitMap bloom expectConsumerNum",
}
_REST = "Everything else"


def acting() -> dict[str, list[str]]:
    """Return the settings of RocketMQ that act here, by section of the configuration page."""
    return {
        title: [name for name in fields_by_name(model) if known_properties.find(name)] for title, _, model in SECTIONS
    }


def not_acting() -> dict[str, list[str]]:
    """Return the settings of RocketMQ without effect here, by the part of RocketMQ they belong to."""
    parts: dict[str, list[str]] = defaultdict(list)
    for name in sorted(known_properties.names().difference(*acting().values())):
        parts[_part_of(name)].append(name)
    return parts


def _part_of(name: str) -> str:
    return next((part for part, words in _PARTS.items() if re.search(f"(?i){'|'.join(words.split())}", name)), _REST)


def render() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *_acting_lists(), *_not_acting_lists()])


def _acting_lists() -> Iterator[str]:
    yield "## Settings that act\n\nEach has RocketMQ's default. Some have a narrower range; see the linked sections.\n"
    for title, names in acting().items():
        anchor = re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        shown = ", ".join(f"`{name}`" for name in sorted(names))
        yield f"- **[{title}](../reference/configuration.md#{anchor})**: {shown}"
    yield ""


def _not_acting_lists() -> Iterator[str]:
    yield "## Settings without effect\n\nA server warns about each and starts, but not with a rejected one.\n"
    parts = not_acting()
    for part in [*_PARTS, _REST]:
        shown = ", ".join(
            f"`{name}`{' (rejected)' if is_refused_setting(name) else ''}" for name in parts.get(part, [])
        )
        if shown:
            yield f"- **{part}**: {shown}"
    yield ""

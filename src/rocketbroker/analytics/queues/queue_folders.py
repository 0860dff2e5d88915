"""Queues of a store by the names of their folders, ``KIND/TOPIC/NUMBER``."""

from typing import Final

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.codec.message.topic_validator import LMQ_PREFIX
from rocketbroker.codec.storefile.config_tables import loads_config
from rocketbroker.codec.storefile.consume_queue_layout import RETIRED
from rocketbroker.codec.storefile.queue_files import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from rocketbroker.common.errors import CodecError

_MOST: Final = (1 << 31) - 1


def queue_topics(folder: StoreFolder, kind: str) -> list[str]:
    """Return the topics that have queues of a kind, sorted; deleted topics whose files still exist are left out."""
    return [name for name in folder.folders(kind) if not RETIRED.search(name)]


def known_topics(folder: StoreFolder) -> set[str]:
    """Return the topics that have queues or are in ``config/topics.json``; empty for a commit log alone."""
    queued = {topic for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE) for topic in queue_topics(folder, kind)}
    try:
        config = loads_config(folder.read_if_there("config/topics.json") or b"{}")
    except CodecError:
        return queued
    return queued | set(config.get("topicConfigTable", ()))


def owning_topics(folder: StoreFolder, kind: str) -> list[str]:
    """Return the topics whose queues own their messages, without LMQs: their messages are in another queue as well."""
    return [topic for topic in queue_topics(folder, kind) if not topic.startswith(LMQ_PREFIX)]


def queue_numbers(folder: StoreFolder, kind: str, topic: str) -> list[int]:
    """Return the numbers of a topic's queues, ascending; names that a broker does not use are ignored."""
    names = [name for name in folder.folders(f"{kind}/{topic}") if name.isascii() and name.isdigit()]
    return sorted(int(name) for name in names if str(int(name)) == name and int(name) <= _MOST)

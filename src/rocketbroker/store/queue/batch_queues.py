"""Topics with queues of batches, and the folders of these queues (ConsumeQueueStore.createConsumeQueueByType)."""

from collections.abc import Mapping
from pathlib import Path

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.store.queue.batch_consume_queue import BatchConsumeQueue, ReadLog


class BatchQueues:
    """Factory of queues of batches.

    Args:
        directory: ``batchconsumequeue``.
        file_size: bytes of each file.
        topics: the topics by name; their attributes are read when a topic gets its first queue.
        read_log: reader of records for ``BatchConsumeQueue``.
    """

    def __init__(self, directory: Path, file_size: int, topics: Mapping[str, TopicConfig], read_log: ReadLog) -> None:
        self.directory = directory
        self.file_size = file_size
        self._topics = topics
        self._read_log = read_log

    def is_batch(self, topic: str) -> bool:
        """Return true if a topic is known to have queues of batches."""
        config = self._topics.get(topic)
        return config is not None and config.is_batch_cq

    def topics(self) -> list[str]:
        """All known topics of batches."""
        return [topic for topic, config in self._topics.items() if config.is_batch_cq]

    def make(self, topic: str, queue_id: int, file_system: FileSystem) -> BatchConsumeQueue:
        folder = self.directory / topic / str(queue_id)
        return BatchConsumeQueue(topic, queue_id, folder, self.file_size, self._read_log, file_system)

    def check_folder(self, folder: Path, *, of_batches: bool) -> None:
        """Check that a topic's folder matches its attributes (``queueTypeShouldBe``).

        Raises:
            StoreError: It does not.
        """
        config = self._topics.get(folder.name)
        if config is None or config.is_batch_cq is of_batches:
            return
        has = "has" if config.is_batch_cq else "does not have"
        raise StoreError(
            f"{folder} exists, but topic {folder.name} {has} queue.type=BatchCQ in config/topics.json; if the topic "
            "is right, move the folder away: its queues are then rebuilt from the CommitLog"
        )

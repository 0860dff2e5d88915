"""The queues of all topics (org.apache.rocketmq.store.queue.ConsumeQueueStore)."""

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rocketbroker.codec.message.topic_validator import SYSTEM_TOPIC_SET
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE, RETIRED
from rocketbroker.codec.storefile.timer_slots import TIMER_TOPIC
from rocketbroker.common.errors import MessageIllegalError, StoreError, TopicBeingDeletedError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.common.open_files import MAPPINGS
from rocketbroker.store.logfile.damaged_files import mend_queue
from rocketbroker.store.logfile.mapped_file import MappedFile, RemovedFile
from rocketbroker.store.queue.batch_consume_queue import BatchQueues
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

log = logging.getLogger(__name__)

# Most bytes of a folder's name.
_LONGEST_NAME = 255
_OWN_TOPICS = SYSTEM_TOPIC_SET | {TIMER_TOPIC}


class MovedBegin(NamedTuple):
    """A queue that begins before a CommitLog offset, and its first queue offset there."""

    queue: ConsumeQueueInterface
    first: int


class FirstOffsets(NamedTuple):
    """Begins of queues at a CommitLog offset.

    ``unreadable``: the errors of queues whose begin cannot be read, with their folder as the error's file.
    """

    moved: list[MovedBegin]
    unreadable: list[OSError]

    def correct(self) -> None:
        """Move the begins of the queues; on the event loop, between two reads."""
        for queue, first in self.moved:
            queue.min_offset = max(queue.min_offset, first)


class ConsumeQueueStore:
    """All queues by topic and number; a queue is created with its first message.

    Args:
        directory: ``consumequeue``, with a folder for each topic, and in that a folder for each queue.
        batch_queues: factory of queues of batches, ``None`` without such topics.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        file_system: FileSystem = LOCAL,
        batch_queues: BatchQueues | None = None,
    ) -> None:
        self._file_system = file_system
        self._batch_queues = batch_queues
        self.directory = directory
        self._file_size = file_size
        self._queues: dict[tuple[str, int], ConsumeQueueInterface] = {}
        self._topics: dict[str, dict[int, ConsumeQueueInterface]] = {}
        # Queues that take messages: all but those of topics that are being deleted.
        self._open: dict[tuple[str, int], ConsumeQueueInterface] = {}
        self._closed_topics: set[str] = set()
        # How often queues were cut since the start: what was found before a cut may be gone.
        self.cuts = 0
        self._retired: deque[tuple[Path, list[ConsumeQueueInterface]]] = deque()
        # Folders of deleted topics that could not be removed yet.
        self._told: set[Path] = set()
        # Queues whose begin could not be read.
        self._unreadable: set[ConsumeQueueInterface] = set()
        # Held while a file is removed by its path, and while a deleted topic gives up its paths to a new one. Both wait
        # for the disk, so the event loop never takes it.
        self._paths = threading.RLock()

    def find(self, topic: str, queue_id: int) -> ConsumeQueueInterface | None:
        """Return the queue, if it has ever had a message."""
        return self._queues.get((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int, *, of_batches: bool = False) -> ConsumeQueueInterface:
        """Return the queue for a new message; create a missing one. The caller has checked the topic's name.

        With ``of_batches`` an unknown topic becomes one of batches.

        Raises:
            TopicBeingDeletedError: Its topic is being deleted.
        """
        queue = self._open.get((topic, queue_id))
        return queue if queue is not None else self._add(topic, queue_id, of_batches=of_batches)

    def for_message(self, topic: str, queue_id: int) -> ConsumeQueueInterface:
        """Return the queue for a new message; create a missing one if it leaves enough mappings to existing queues.

        Queues of the broker's own topics take from the reserve. Messages that the log has need their queue in any case.

        Raises:
            TopicBeingDeletedError: Its topic is being deleted.
            StoreError: Too many files are mapped.
        """
        queue = self._open.get((topic, queue_id))
        if queue is not None:
            return queue
        if topic not in _OWN_TOPICS and (why := MAPPINGS.why_reached(is_new_queue=True)):
            raise StoreError(f"topic {topic} gets no new queue: {why}")
        return self._add(topic, queue_id)

    def find_open(self, topic: str, queue_ids: Sequence[int]) -> list[ConsumeQueueInterface] | None:
        """Return queues of a topic for new messages; ``None`` if one of them does not exist yet."""
        queues = [self._open.get((topic, queue_id)) for queue_id in queue_ids]
        return None if None in queues else queues  # type: ignore[return-value]  # none of them is None

    def _add(self, topic: str, queue_id: int, *, of_batches: bool = False) -> ConsumeQueueInterface:
        if "/" in topic or topic in {"", ".", ".."}:
            raise MessageIllegalError(f"topic {topic!r} cannot be a folder name; send to another topic")
        if topic in self._closed_topics:
            raise TopicBeingDeletedError(
                f"topic {topic} is being deleted; create it again once the deletion is complete"
            )
        # Of the kind of the topic's other queues; the first one follows the topic's attribute, else the caller.
        batch = self._batch_queues
        queue: ConsumeQueueInterface
        if batch is not None and (self.holds_batches(topic) or (of_batches and not self._topics.get(topic))):
            queue = batch.make(topic, queue_id, self._file_system)
        else:
            folder = self.directory / topic / str(queue_id)
            queue = ConsumeQueue(topic, queue_id, folder, self._file_size, self._file_system)
        self._queues[topic, queue_id] = self._open[topic, queue_id] = queue
        self._topics.setdefault(topic, {})[queue_id] = queue
        return queue

    def holds_batches(self, topic: str) -> bool:
        """Return true if the queues of a topic hold batches, or would by its attribute."""
        others, batch = self._topics.get(topic), self._batch_queues
        if others:
            return next(iter(others.values())).holds_batches
        return batch is not None and batch.is_batch(topic)

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last readable message; 0 for a queue without messages."""
        queue = self.find(topic, queue_id)
        return queue.max_offset if queue else 0

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the first message; 0 for a queue without messages."""
        queue = self.find(topic, queue_id)
        return queue.min_offset if queue else 0

    def queues_of(self, topic: str) -> dict[int, ConsumeQueueInterface]:
        """Return the queues of a topic by number."""
        return self._topics.get(topic, {})

    @property
    def topics(self) -> set[str]:
        """All topics with queues."""
        return set(self._topics)

    def __iter__(self) -> Iterator[ConsumeQueueInterface]:
        return iter(list(self._queues.values()))

    def load(
        self,
        report: list[str] | None = None,
        before_change: Callable[[], None] = lambda: None,
        *,
        clean_stop: bool = True,
    ) -> set[ConsumeQueueInterface]:
        """Map all existing queues, and return those that lack entries because of damaged files."""
        damaged: set[ConsumeQueueInterface] = set()
        texts = [] if report is None else report
        batch = self._batch_queues
        kinds = [(self.directory, self._file_size, CQ_STORE_UNIT_SIZE, False)]
        if batch is not None:
            kinds.append((batch.directory, batch.file_size, BATCH_CQ_STORE_UNIT_SIZE, True))
        for directory, file_size, unit_size, of_batches in kinds:
            for topic in self._topic_folders(directory):
                if batch is not None:
                    batch.check_folder(topic, of_batches=of_batches)
                for folder in sorted(path for path in topic.iterdir() if path.is_dir() and path.name.isdigit()):
                    lacks = mend_queue(
                        folder,
                        file_size,
                        self._file_system,
                        texts,
                        before_change,
                        clean_stop=clean_stop,
                        unit_size=unit_size,
                    )
                    queue = self._add(topic.name, int(folder.name), of_batches=of_batches)
                    queue.load()
                    if lacks or queue.cut_doubtful(texts, before_change):
                        damaged.add(queue)
        if batch is not None and not clean_stop and not batch.directory.is_dir() and (topics := batch.topics()):
            # Only the log may know that these topics had queues. The folder is created, so that topics without messages
            # cost only one start.
            before_change()
            self._file_system.make_folders(batch.directory)
            damaged |= {self.find_or_create(topic, 0) for topic in topics}
        return damaged

    def _topic_folders(self, directory: Path) -> Iterator[Path]:
        """Yield the folders of topics; remove leftover folders of deleted topics."""
        for topic in sorted(p for p in directory.iterdir() if p.is_dir()) if directory.is_dir() else ():
            if RETIRED.search(topic.name):
                self._remove_tree(topic)
            else:
                yield topic

    def _remove_tree(self, folder: Path) -> None:
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            if path.is_dir():
                self._remove_tree(path)
            else:
                self._file_system.unlink(path)
        self._file_system.remove_folder(folder)

    def changed_files(self) -> Generator[tuple[ConsumeQueueInterface, MappedFile]]:
        """Yield the queues and their files with entries that were not synced; called on the flush thread.

        A queue counts as changed until the files after it are requested, so close the generator where a sync fails.
        """
        for queue in list(self._queues.values()):
            if queue.dirty:
                queue.dirty = False
                try:
                    yield from [(queue, file) for file in list(queue.queue.files) if file.to_flush]
                except GeneratorExit:
                    queue.dirty = True
                    raise

    @property
    def directories(self) -> list[Path]:
        """The folders of the queues."""
        batch = self._batch_queues
        return [self.directory] if batch is None or not batch.directory.is_dir() else [self.directory, batch.directory]

    @property
    def max_physical_offset(self) -> int:
        """Return the CommitLog offset after the last message that any queue knows, 0 without any."""
        return max((queue.message_end(queue.max_offset - 1) for queue in self), default=0)

    def positions_of(self, physical_offset: int) -> dict[ConsumeQueueInterface, int]:
        """Return the queue offset in each queue from which on its messages are at or after a CommitLog offset."""
        return {queue: queue.position_of(physical_offset) for queue in self}

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Move the begin of each queue to the first message that the CommitLog still holds."""
        for queue in self:
            queue.correct_min_offset(min_physical_offset)

    def close_topics(self, topics: Iterable[str]) -> None:
        """Accept no message for topics, and create no queues of them, until ``open_topics``; reads continue."""
        self._closed_topics |= set(topics)
        self._choose_open()

    def open_topics(self, topics: Iterable[str]) -> None:
        """Accept messages for topics again."""
        self._closed_topics -= set(topics)
        self._choose_open()

    def _choose_open(self) -> None:
        self._open = {key: queue for key, queue in self._queues.items() if key[0] not in self._closed_topics}

    def delete_topic(self, topic: str) -> bool:
        """Rename a topic's folder and take its queues out of service, while nobody puts messages (blocks).

        Raises:
            OSError: The disk failed; the topic is unchanged.
        """
        self.move_away(topic)
        return self.take_out(topic)

    def move_away(self, topic: str) -> None:
        """Rename the folder of a closed topic, so that the topic can be created again (blocks; on any thread).

        Raises:
            OSError: The disk failed; the topic is unchanged.
        """
        queues = self.queues_of(topic).values()
        if not queues:
            return
        folder = next(iter(queues)).queue.directory.parent
        with self._paths:
            # No topic has such a name.
            names = (folder.with_name(f"{folder.name}.deleted-{number}") for number in itertools.count())
            retired = next(name for name in names if not name.exists())
            if folder.is_dir():
                self._file_system.rename(folder, retired)
            for queue in queues:
                queue.queue.moved(retired / str(queue.queue_id))

    def take_out(self, topic: str) -> bool:
        """Take all queues of a topic that was moved away out of service; return false if it has none.

        ``remove_retired`` removes their files.
        """
        queues = list(self._topics.pop(topic, {}).values())
        for queue in queues:
            del self._queues[topic, queue.queue_id]
            self._open.pop((topic, queue.queue_id), None)
        if queues:
            self._retired.append((queues[0].queue.directory.parent, queues))
        return bool(queues)

    def remove_retired(self) -> None:
        """Remove the files of deleted topics (blocks); called on the flush thread, which may have been syncing them.

        A failure is logged once, and each later call retries; a start removes the files too.
        """
        for _ in range(len(self._retired)):
            folder, queues = self._retired.popleft()
            try:
                for queue in queues:
                    queue.queue.delete_all()
                self._remove_tree(folder)
            except OSError:
                self._retired.append((folder, queues))
                if folder not in self._told:
                    log.exception(
                        "queues: cannot remove the files of a deleted topic; the broker tries again until it succeeds"
                    )
                self._told.add(folder)
            else:
                self._told.discard(folder)

    def first_offsets(self, physical_offset: int) -> FirstOffsets:
        """Find the queues that begin before a CommitLog offset, and their begin at it (blocks; on any one thread).

        An unreadable queue delays no other, and is logged once until it can be read.
        """
        found = FirstOffsets([], [])
        for queue in self:
            try:
                # Files are opened by name, and the folder of a deleted topic may be renamed at the same time.
                with self._paths:
                    first = queue.first_offset_from(physical_offset)
            except OSError as error:
                # The files are closed if the topic was deleted meanwhile.
                if self._serves(queue):
                    folder = queue.queue.directory
                    if queue not in self._unreadable:
                        self._unreadable.add(queue)
                        log.error(  # noqa: TRY400 - the traceback says nothing
                            "%s cannot be read: %s; the queue is not cleaned until it can be read; its messages expire "
                            "as usual",
                            folder, error.strerror,
                        )  # fmt: skip
                    found.unreadable.append(OSError(error.errno, error.strerror, str(folder)))
                continue
            self._unreadable.discard(queue)
            if first > queue.min_offset and self._serves(queue):
                found.moved.append(MovedBegin(queue, first))
        return found

    def remove_file(self, queue: ConsumeQueueInterface, file: MappedFile) -> RemovedFile | None:
        """Remove a file of a queue (blocks; on any thread); return ``None`` if its topic was deleted.

        Raises:
            OSError: The disk failed.
        """
        with self._paths:
            # The path may belong to a new topic by now.
            stays = queue.queue.directory.parent.name == queue.topic
            return file.remove() if stays else None

    def _serves(self, queue: ConsumeQueueInterface) -> bool:
        return self.find(queue.topic, queue.queue_id) is queue

    def topics_without_messages(self) -> set[str]:
        """Return the topics without a message in any queue."""
        return {
            topic
            for topic, queues in self._topics.items()
            if all(queue.min_offset >= queue.next_offset for queue in queues.values())
        }

    def close(self) -> None:
        """Release all mappings."""
        for queue in self:
            queue.queue.close()
        self._queues.clear()
        self._open.clear()
        self._topics.clear()


def is_folder_name(topic: str) -> bool:
    """Return true if a topic can have a folder: the name may come from a damaged file."""
    return topic not in {"", ".", ".."} and not {"/", "\0"} & set(topic) and len(topic.encode()) <= _LONGEST_NAME

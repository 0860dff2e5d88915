"""Generator of stores as a broker writes them, by numpy: a million messages a second instead of twenty thousand.

All messages have one length, so that the offset of each follows from its number. The bytes are those that
``MessageStore`` writes for the same messages.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import numpy as np

from bench.record_template import MOST_MESSAGES, Messages, Numbers, RecordTemplate
from bench.store_files import IndexWriter, PagedFiles
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_decoder import BLANK_LENGTH, encode_blank
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.index_file_layout import file_size as index_file_size
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.store.recovery import queue_recovery

# Messages generated at once, and bytes of their records: columns stay in the CPU caches, and memory is bounded.
_CHUNK: Final = 1 << 16
_CHUNK_BYTES: Final = 32 << 20
# Recovery trusts a checkpoint time only up to this many ms before it.
CHECKPOINT_SAFETY_MS: Final = 3000


class StoreGenerator:
    """Generator of one store.

    Args:
        config: paths and sizes of log, queues and index files.
        messages: shape of the messages.
        count: number of messages.
    """

    def __init__(self, config: MessageStoreConfig, messages: Messages, count: int) -> None:
        if not 0 < count <= MOST_MESSAGES:
            raise ValueError(f"{count} messages cannot be numbered, 1 to {MOST_MESSAGES} can")
        self.config = config
        self.messages = messages
        self.count = count
        self.template = RecordTemplate(messages)
        self.per_file = (config.mapped_file_size_commit_log - BLANK_LENGTH) // self.template.size
        if not self.per_file:
            raise ValueError(f"records of {self.template.size} bytes do not fit into files of the CommitLog")

    @property
    def disk_bytes(self) -> int:
        """Approximate size of the store on disk."""
        config = self.config
        keys = self.count * self.template.keys
        index_files = -(-keys // (config.max_index_num - 1)) if config.message_index_enable else 0
        index = index_files * index_file_size(config.max_hash_slot_num, config.max_index_num)
        return self.count * (self.template.size + CQ_STORE_UNIT_SIZE) + index

    @property
    def last_timestamp(self) -> int:
        """Store time of the last message, ms."""
        return self.messages.timestamp(self.count - 1)

    def offset_of(self, number: int) -> int:
        """Return the CommitLog offset of a message."""
        return (
            number // self.per_file * self.config.mapped_file_size_commit_log
            + number % self.per_file * self.template.size
        )

    @property
    def end(self) -> int:
        """CommitLog offset after the last message."""
        return self.offset_of(self.count - 1) + self.template.size

    def _offsets(self, numbers: Numbers) -> Numbers:
        in_file = numbers % self.per_file * self.template.size
        return numbers // self.per_file * self.config.mapped_file_size_commit_log + in_file

    def write(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Write and sync log, queues, index and topics; call ``mark_clean`` or ``mark_crashed`` afterwards.

        Args:
            progress: callback with the number of messages written so far.
        """
        with ExitStack() as stack:
            log = PagedFiles(self.config.commit_log_dir, self.config.mapped_file_size_commit_log)
            stack.enter_context(closing(log))
            queues = [stack.enter_context(closing(self._queue_files(each))) for each in range(self.messages.streams)]
            index = stack.enter_context(closing(IndexWriter(self.config))) if self.config.message_index_enable else None
            for numbers in self._chunks():
                offsets = self._offsets(numbers)
                log.write(int(offsets[0]), self.template.records(numbers, offsets).data.cast("B"))
                self._close_file(log, int(numbers[-1]))
                self._write_queues(queues, numbers, offsets)
                if index is not None:
                    timestamps = self.messages.first_timestamp + numbers // self.messages.per_ms
                    index.enter(self.template.key_hashes(numbers), offsets, timestamps)
                progress(int(numbers[-1]) + 1)
        self.write_topics()

    def _chunks(self) -> Iterator[Numbers]:
        """Yield the numbers of all messages in chunks, each within one log file."""
        start = 0
        most = max(min(_CHUNK, _CHUNK_BYTES // self.template.size), 1)
        while start < self.count:
            end = min(start + most, (start // self.per_file + 1) * self.per_file, self.count)
            yield np.arange(start, end, dtype=np.int64)
            start = end

    def _close_file(self, log: PagedFiles, last: int) -> None:
        """Write the BLANK record at the end of a full file."""
        end = last + 1
        if end % self.per_file == 0 and end < self.count:
            at = self.offset_of(last) + self.template.size
            log.write(at, memoryview(encode_blank(self.offset_of(end) - at)))

    def _queue_files(self, stream: int) -> PagedFiles:
        topic, queue_id = self.messages.place(stream)
        folder = self.config.consume_queue_dir / topic / str(queue_id)
        return PagedFiles(folder, self.config.mapped_file_size_consume_queue)

    def _write_queues(self, queues: Sequence[PagedFiles], numbers: Numbers, offsets: Numbers) -> None:
        streams = len(queues)
        start = int(numbers[0])
        for stream, queue in enumerate(queues):
            first = (stream - start) % streams
            mine = offsets[first::streams]
            if len(mine):
                entries = np.empty(len(mine), CONSUME_QUEUE_ENTRY)
                entries["commit_log_offset"] = mine
                entries["size"] = self.template.size
                entries["tags_code"] = self.template.tags_code
                queue.write((start + first) // streams * CQ_STORE_UNIT_SIZE, memoryview(entries.tobytes()))

    def write_topics(self) -> None:
        """Write only ``config/topics.json``, so that a broker accepts messages for these topics."""
        path = Path(self.config.store_path_root_dir) / "config" / "topics.json"
        manager = TopicConfigManager(path, BrokerConfig(), SystemClock())
        for topic in self.messages.topics:
            manager.update(TopicConfig(topic, self.messages.queues, self.messages.queues))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(manager.encode())

    def mark_clean(self) -> None:
        """Leave the store as after a clean stop."""
        self._mark(StoreCheckpoint(*[self.last_timestamp] * 3))
        self.config.abort_path.unlink(missing_ok=True)

    def mark_crashed(self, known: float, *, index_known: bool) -> None:
        """Leave the store as after a kill.

        Args:
            known: share of the messages that are on disk according to the checkpoint, 0 to 1.
            index_known: True if the checkpoint covers the index too. A broker that has neither filled an index file
                nor stopped cleanly since its start has no such checkpoint.
        """
        timestamp = self.messages.timestamp(int(self.count * known)) + CHECKPOINT_SAFETY_MS
        self._mark(StoreCheckpoint(timestamp, timestamp, timestamp if index_known else 0))
        self.config.abort_path.write_bytes(str(os.getpid()).encode())
        # Recovery trusts the notes of a clean stop, whatever the checkpoint says.
        for path in self.config.config_dir.glob(f"{queue_recovery.QUEUE_ENDS_FILE}*"):
            path.unlink()

    def _mark(self, checkpoint: StoreCheckpoint) -> None:
        self.config.checkpoint_path.write_bytes(checkpoint.encode())

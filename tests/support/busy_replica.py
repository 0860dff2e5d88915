"""A copy of other logs that is pulled from, cleaned and cut at the same time; killed at any write."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.common.errors import StoreError
from rocketbroker.store.clean.clean_files_service import CleanFilesService
from rocketbroker.store.read.get_message import GetMessageRequest
from tests.support.cleaning import SaidDisk, age
from tests.support.log_messages import messages_of
from tests.support.replica_crash import QUEUES, Cleaning, Cutting, Following, ReplicaCrashScript
from tests.support.stores import completed, pulled

Place = tuple[str, int, int]


class BusyReplicaScript(ReplicaCrashScript):
    """Follows one log after the other, with pulls and cleaning beside each step.

    Args:
        root: an empty folder.
        flush_disk_type: SYNC_FLUSH or ASYNC_FLUSH.
        seed: chooses the steps.
        begin: where the copy begins, the begin of a file; earlier if a cut is before it.
    """

    def __init__(self, root: Path, flush_disk_type: str, seed: int, begin: int) -> None:
        super().__init__(
            root,
            flush_disk_type,
            seed,
            delete_commit_log_files_interval=0,
            delete_consume_queue_files_interval=0,
            delete_file_batch_max=1,
            mapped_file_size_consume_queue=100,
        )
        self._cleaning = CleanFilesService(self._store, self._clock, lambda _: [], SaidDisk())
        self._begin = begin
        # Cleaning leaves the file with this offset, at which the next cut is, except beside the last cut.
        self._next_cut = 0
        # Bodies by place of the logs that a pull may find.
        self._known: list[dict[Place, bytes]] = []
        self.pulls = self.cleaned = 0

    async def run_all(self, logs: Sequence[bytes]) -> None:
        """Follow each log to its end, or as far as cleaning left what it shares with the next."""
        cuts = [_common(old, new) for old, new in pairwise(logs)]
        self._begin = min(self._begin, min(cuts) - min(cuts) % self._running.config.mapped_file_size_commit_log)
        await self.run(0)
        self.file_system.mark(Cleaning(self._begin))
        if self._begin:
            await self._copy.begin_at(self._begin)
        for log, cut in zip(logs, [0, *cuts], strict=True):
            self._known = [*self._known[-1:], _bodies(log)]
            if cut and not await self._cut_and_clean(cut, log, is_last=log is logs[-1]):
                break
            self._next_cut = min(cuts[logs.index(log) :], default=len(log))
            await self.follow(log)
        await self._cleaning.stop()
        await self.stop()

    async def _cut_and_clean(self, offset: int, new: bytes, *, is_last: bool) -> bool:
        """Cut the copy, while it is cleaned and pulled from; return false if cleaning took the offset first."""
        if is_last:
            self._next_cut = len(new)
        cut = asyncio.ensure_future(self._try_to_cut(offset))
        beside = [self._clean(), *(self._pull() for _ in range(6))]
        self._chance.shuffle(beside)
        await asyncio.gather(*beside, cut)
        await self._settle()
        self._known = self._known[-1:]
        if cut.result():
            self.file_system.mark(Following(new))
        return cut.result()

    async def _try_to_cut(self, offset: int) -> bool:
        self.file_system.mark(Cutting(offset))
        try:
            await self._copy.truncate(offset)
        except StoreError:
            assert self._store.commit_log.min_offset > offset
            return False
        return True

    async def _flush_queues(self) -> None:
        await asyncio.gather(self._pull(), asyncio.to_thread(self._running.queue_flusher.flush), self._pull())
        if self._chance.random() < 0.3:
            await asyncio.gather(self._pull(), self._clean(), self._pull())

    async def _clean(self) -> None:
        """Remove the first file, if there are others and all of it is dispatched."""
        files = self._store.commit_log.queue.files
        if len(files) > 1:
            if files[1].file_from_offset > self._next_cut:
                return
            self.file_system.mark(Cleaning(files[1].file_from_offset))
        age(self._store, self._clock, 0, 1000)
        self._cleaning.delete_files_manually()
        await self._cleaning.clean()
        self.cleaned += self._store.commit_log.min_offset > self._begin

    async def _pull(self) -> None:
        """Check that a pull gets messages of one log, back to back."""
        topic, queue_id = self._chance.choice(QUEUES)
        begin, end = self._store.fetcher.queue_range(topic, queue_id)
        if begin == end:
            return
        offset, count = self._chance.randrange(begin, end), self._chance.randint(1, 8)
        found = self._store.fetcher.fetch(GetMessageRequest(topic, queue_id, offset, count, 1 << 20))
        for _ in range(self._chance.randrange(3)):
            await asyncio.sleep(0)
        result = await completed(found)
        bodies = [one.body for one in decode_messages(pulled(result), decompress=False)]
        places = [(topic, queue_id, offset + number) for number in range(len(bodies))]
        assert any([known.get(place) for place in places] == bodies for known in self._known), "messages of two logs"
        if bodies:
            assert result.next_begin_offset == offset + len(bodies), "messages were passed over"
        self.pulls += 1


def _common(old: bytes, new: bytes) -> int:
    """Return the last offset at which a message of both logs begins, where they are alike up to it."""
    return max(at for at in messages_of(new).keys() & messages_of(old).keys() if new[:at] == old[:at])


def _bodies(log: bytes) -> dict[Place, bytes]:
    return {(one.topic, one.queue_id, one.queue_offset): one.body for one in messages_of(log).values()}

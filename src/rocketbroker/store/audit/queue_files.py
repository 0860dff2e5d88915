"""The files of one ConsumeQueue, for reading only; none is kept open, since a store may have tens of thousands."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE, FILLER_SIZE
from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.mapped_file_name import file_name_to_offset, offset_to_file_name
from rocketbroker.common.errors import CodecError
from rocketbroker.store.audit.findings import Findings

Entries = NDArray[Any]
# So many entries are read at a time: 20 MB.
_AT_ONCE = 1 << 20


class QueueFiles:
    """The entries of a queue by queue offset, from the ``first`` to before ``end``, which files have room for.

    Args:
        directory: ``consumequeue/<topic>/<queueId>``.
        findings: takes what is wrong with the files as files.
    """

    def __init__(self, directory: Path, findings: Findings) -> None:
        self.directory = directory
        found = sorted(_files(directory))
        sizes = [size for _, size in found if size]
        self.file_size = max(set(sizes), key=sizes.count, default=0)
        self._bases = {base for base, size in found if size}
        self.first = min(self._bases, default=0) // CQ_STORE_UNIT_SIZE
        self.end = (max(self._bases, default=0) + self.file_size) // CQ_STORE_UNIT_SIZE
        self._check([each for each in found if each[1]], findings)

    def _check(self, found: list[tuple[int, int]], findings: Findings) -> None:
        for base, size in found:
            if size != self.file_size:
                text = f"{size} bytes; the others have {self.file_size}"
                findings.add(AuditRule.QUEUE_FILE_SIZE, self.path_of(base), 0, text)
        for (before, _), (after, _) in pairwise(found):
            if before + self.file_size < after:
                text = f"the files begin at {before} and {after}, and have {self.file_size} bytes"
                findings.add(AuditRule.QUEUE_FILE_MISSING, self.path_of(before), self.file_size, text)

    @property
    def bases(self) -> list[int]:
        """The position in the queue at which each file begins, ascending."""
        return sorted(self._bases)

    def path_of(self, base: int) -> Path:
        """The file that begins at a position of the queue."""
        return self.directory / offset_to_file_name(base)

    def place(self, queue_offset: int) -> tuple[Path, int]:
        """File and position of an entry."""
        position = queue_offset * CQ_STORE_UNIT_SIZE
        base = position - position % self.file_size if self.file_size else 0
        return self.path_of(base), position - base

    def read(self, start: int, stop: int) -> Entries:
        """Entries ``start`` to before ``stop`` as CONSUME_QUEUE_ENTRY; zeros where no file has them."""
        found = np.zeros(stop - start, CONSUME_QUEUE_ENTRY)
        per_file = self.file_size // CQ_STORE_UNIT_SIZE
        at = max(start, self.first)
        while at < min(stop, self.end):
            upto = min(stop, at - at % per_file + per_file)
            path, position = self.place(at)
            if position // CQ_STORE_UNIT_SIZE >= 0 and at * CQ_STORE_UNIT_SIZE - position in self._bases:
                part = np.fromfile(path, CONSUME_QUEUE_ENTRY, upto - at, offset=position)
                found[at - start : at - start + len(part)] = part
            at = upto
        return found

    def chunks(self, queue_offset: int = 0) -> Iterator[tuple[int, Entries]]:
        """All entries there is room for from a queue offset on, and the queue offset at which each chunk begins."""
        for start in range(max(self.first, queue_offset), self.end, _AT_ONCE):
            yield start, self.read(start, min(start + _AT_ONCE, self.end))


def written_batches(files: QueueFiles) -> Iterator[tuple[Entries, Positions]]:
    """The entries of a queue of batches that were written, as BATCH_CONSUME_QUEUE_ENTRY, and their positions, by file.

    A position is that in the queue's files taken as one.
    """
    for base in files.bases:
        entries = np.fromfile(
            files.path_of(base), BATCH_CONSUME_QUEUE_ENTRY, files.file_size // BATCH_CQ_STORE_UNIT_SIZE
        )
        written = np.flatnonzero(entries["size"] != 0)
        yield entries[written], base + written * BATCH_CQ_STORE_UNIT_SIZE


def batch_entries(files: QueueFiles) -> Iterator[np.void]:
    """The entries of a queue of batches that were written, one by one."""
    for entries, _ in written_batches(files):
        yield from entries


def _files(directory: Path) -> Iterator[tuple[int, int]]:
    for path in directory.iterdir():
        try:
            yield file_name_to_offset(path.name), path.stat().st_size
        except CodecError:
            continue


def is_entry(entries: Entries) -> NDArray[np.bool_]:
    """Which entries were written and are no fillers."""
    found: NDArray[np.bool_] = (entries["size"] > 0) & ~(
        (entries["size"] == FILLER_SIZE) & (entries["commit_log_offset"] == 0)
    )
    return found


def is_written(entries: Entries) -> NDArray[np.bool_]:
    """Which places hold an entry or a filler; a size below 0 was never written by a broker, but is not empty either."""
    found: NDArray[np.bool_] = entries["size"] != 0
    return found

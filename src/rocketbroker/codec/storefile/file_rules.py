"""Rules about the files of a store, and about files that hold one value or one table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.checkpoint_layout import decode_checkpoint
from rocketbroker.codec.storefile.queue_files import QueueFiles
from rocketbroker.common.errors import CodecError

_TIMES: Final = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


class FileFault(NamedTuple):
    """Rule that a file breaks, position in the file, and actual and expected content."""

    rule: AuditRule
    path: str
    position: int
    detail: str


def check_log_sizes(files: Sequence[tuple[str, int]], file_size: int = 0) -> Iterator[FileFault]:
    """Compare the sizes of the CommitLog's files, given by path in order, with ``file_size`` or with each other.

    The last file may be empty: a broker creates it before it allocates its blocks.
    """
    made = [file for number, file in enumerate(files, 1) if file[1] or number < len(files)]
    sizes = [size for _, size in made]
    usual = file_size or max(set(sizes), key=sizes.count, default=0)
    for path, size in made:
        if size != usual:
            text = f"{size} bytes instead of {usual}, as the other files or the settings have"
            yield FileFault(AuditRule.LOG_FILE_SIZE, path, 0, text)


def check_queue_files(files: QueueFiles) -> Iterator[FileFault]:
    """Find missing files of a queue, and files of another size."""
    for file in files.files:
        if file.size != files.file_size:
            text = f"{file.size} bytes instead of {files.file_size}, as the others have"
            yield FileFault(AuditRule.QUEUE_FILE_SIZE, file.path, 0, text)
    for before, after in files.gaps():
        if before.base + files.file_size < after.base:
            text = f"the files begin at {before.base} and {after.base}, and have {files.file_size} bytes"
            yield FileFault(AuditRule.QUEUE_FILE_MISSING, before.path, files.file_size, text)


def check_checkpoint(path: str, data: ReadableBuffer, newest_ms: int | None) -> Iterator[FileFault]:
    """Compare the checkpoint with the store time of the newest message, ``None`` for a log without messages."""
    try:
        checkpoint = decode_checkpoint(data)
    except CodecError as error:
        yield FileFault(AuditRule.CHECKPOINT_DAMAGED, path, 0, str(error))
        return
    for number, name in enumerate(_TIMES):
        at = getattr(checkpoint, name)
        if at < 0:
            yield FileFault(AuditRule.CHECKPOINT_DAMAGED, path, number * 8, f"{name} is {at}")
        elif newest_ms is not None and at > newest_ms:
            text = f"{name} is {at}, but the newest message was stored at {newest_ms}"
            yield FileFault(AuditRule.CHECKPOINT_AHEAD, path, number * 8, text)


def deleted_before(table: Mapping[Any, Any]) -> dict[str, int]:
    """Return for each deleted topic the physical offset before which its messages were deleted (deletedTopics.json)."""
    marks = table.get("deleted")
    if not isinstance(marks, dict):
        return {}
    return {str(topic): offset for topic, offset in marks.items() if isinstance(offset, int)}

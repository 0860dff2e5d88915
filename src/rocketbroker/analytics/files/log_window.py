"""Windows over a CommitLog file, local or remote."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_files import opened
from rocketbroker.codec.storefile.store_file import LogWindow

#: Bytes read at a time from a remote store; also bounds the rows of a batch.
WINDOW_SIZE: Final = 16 << 20
# Bytes read at a time from a local store: each window has a fixed cost, and larger ones miss the processor's cache.
_LOCAL_WINDOW_SIZE: Final = 4 << 20


@contextmanager
def log_window(file: LogFile, limit: int | None = None) -> Iterator[LogWindow]:
    """Open ``file`` for a ``with`` block; bytes after the position ``limit`` are loaded only on request."""
    with opened(open_folder(file.root), file.name, "commit-log file") as source:
        yield LogWindow(source, file, _LOCAL_WINDOW_SIZE if file.root.is_local else WINDOW_SIZE, limit)

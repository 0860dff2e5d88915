"""Finds commit-log files. Answers to ``MappedFileQueue.load``."""

from pathlib import Path

from rocketbroker.codec.storefile.mapped_file_name import file_name_to_offset
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.common.file_window import CommitLogFile, measure


def commit_log_directory(store_dir: str | Path) -> Path:
    """The commit-log directory of ``store_dir``, which is a store's root or that directory itself.

    :class:`StoreError` when it is neither.
    """
    given = Path(store_dir)
    if not given.is_dir():
        what = "is not a directory" if given.exists() else "does not exist"
        raise StoreError(f"{given} {what}; {_EXPECTED}")
    for candidate in (given / "commitlog", given):
        if candidate.is_dir() and (candidate.name == "commitlog" or _offsets_and_paths(candidate)):
            return candidate
    raise StoreError(f"{given} holds no commit log; {_EXPECTED}")


_EXPECTED = "a RocketMQ store directory (with commitlog/ in it) or its commit-log directory is expected"


def commit_log_files(store_dir: str | Path) -> list[CommitLogFile]:
    """The files of the commit log by offset, as they are now; empty if nothing was ever stored."""
    directory = commit_log_directory(store_dir)
    return [measure(base, path) for base, path in _offsets_and_paths(directory)]


def _offsets_and_paths(directory: Path) -> list[tuple[int, Path]]:
    found = []
    for path in directory.iterdir():
        try:
            found.append((file_name_to_offset(path.name), path))
        except CodecError:
            continue  # the broker keeps other files there too, such as those of an allocation under way
    return sorted(found)

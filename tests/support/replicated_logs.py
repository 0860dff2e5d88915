"""Comparison of the CommitLogs of a master and its slave, by a reader that shares no code with the package."""

from pathlib import Path

from tests.support.commit_log_follower import CommitLogFollower, Found, Place

ENTRY = 20


def log_files(store: Path) -> dict[str, bytes]:
    """Return the files of a store's CommitLog that have records, by name."""
    files = {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir()) if path.name.isdigit()}
    return {name: data for name, data in files.items() if any(data[:8])}


def same_logs(master: Path, slave: Path) -> bool:
    """Return true if the slave has the same bytes as the master, from where its log begins."""
    here, there = log_files(master), log_files(slave)
    return bool(there) and there == {name: data for name, data in here.items() if name >= min(there)}


def records_of(store: Path, file_size: int) -> dict[Place, Found]:
    """Return the messages of a store that has its whole log; a queue offset used twice or left out is an error."""
    follower = CommitLogFollower(store, file_size)
    follower.read_on()
    return follower.records


def check_history(acknowledged: dict[Place, bytes], store: Path, file_size: int) -> None:
    """Check that each acknowledged message is where its sender was told."""
    records = records_of(store, file_size)
    missing = {place for place, body in acknowledged.items() if place not in records or records[place].body != body}
    assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged messages are not in {store}: {missing}"

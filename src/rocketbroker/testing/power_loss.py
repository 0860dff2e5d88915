"""Loss of what was not on disk: the unflushed end of the CommitLog, and tables that were not written."""

from pathlib import Path

from rocketbroker.app.broker_controller import BrokerController


class PowerLoss:
    """Contents of a store's disk at one moment, to be restored after the broker has stopped.

    Args:
        broker: the running broker.
    """

    def __init__(self, broker: BrokerController) -> None:
        store = broker.store
        self._log = store.config.commit_log_dir
        self._flushed = store.flusher.flushed_offset
        self._tables = store.config.config_dir
        kept = [*_files(self._tables), store.config.checkpoint_path, store.config.abort_path]
        self._contents = {path: path.read_bytes() for path in kept if path.exists()}

    def restore(self) -> None:
        """Clear the CommitLog from the flushed offset on, and restore all tables (blocks)."""
        for path in self._log.iterdir():
            _clear(path, max(self._flushed - int(path.name), 0))
        for path in _files(self._tables):
            path.unlink()
        for path, content in self._contents.items():
            path.write_bytes(content)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _clear(path: Path, position: int) -> None:
    """Write zeros from a position on, in place of all bytes that are not zero."""
    with path.open("r+b") as file:
        file.seek(position)
        while block := file.read(1024 * 1024):
            if block.strip(b"\0"):
                file.seek(position)
                file.write(bytes(len(block)))
            position += len(block)
            file.seek(position)

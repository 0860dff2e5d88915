"""Log files of a server under RocketMQ's names, renamed by size and written again after any error of the disk.

The counterpart of the appenders in rmq.broker.logback.xml, rmq.namesrv.logback.xml and rmq.proxy.logback.xml.
"""

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from rocketbroker.auth.audit_log import AUDIT_LOGGER
from rocketbroker.common.config.log_settings import BrokerLogSettings, LogSettings

#: A server, by which its files are named.
ServerKind = Literal["broker", "namesrv", "proxy"]

STATS_LOGGER: Final = "rocketbroker.stats"
WATERMARK_LOGGER: Final = "rocketbroker.watermark"
#: Logger of metricsExporterType=LOG.
METRICS_LOGGER: Final = "rocketbroker.metrics.log_exporter"
#: Loggers of figures that are written by the clock, and of the audit: to files, never to the terminal, and at any level
#: of the log.
FILE_ONLY: Final = frozenset({STATS_LOGGER, WATERMARK_LOGGER, METRICS_LOGGER, AUDIT_LOGGER})
# Those whose lines are whole documents, with the end of the file's name.
_DOCUMENTS: Final = {METRICS_LOGGER: "metrics", AUDIT_LOGGER: "audit"}

# File by the first of a logger's prefixes; other loggers of a server write to the file that has its kind as its name.
_BROKER_FILES: Final = (
    (STATS_LOGGER, "stats"),
    (WATERMARK_LOGGER, "watermark"),
    ("rocketbroker.store", "store"),
    ("rocketbroker.ha", "store"),
    ("rocketbroker.transport", "remoting"),
    ("rocketbroker.broker.transaction", "transaction"),
    ("rocketbroker.broker.pop", "pop"),
    ("rocketbroker.proxy", "proxy"),
)
# Seconds between two looks at a file's name, and between two tries after an error.
_LOOK_S: Final = 1.0
# Permissions, less the umask. The audit names users, addresses and settings, which are for the server's group at most.
_MODE: Final = 0o644
_AUDIT_MODE: Final = 0o640
_HOME_VARIABLE: Final = "ROCKETMQ_HOME"
#: Folder of renamed files, as in RocketMQ.
OTHER_DAYS: Final = "otherdays"

Report = Callable[[str], None]


def log_folder(config: LogSettings, broker: str = "") -> Path | None:
    """Return the folder of log files, ``None`` for no files.

    ``logDir`` comes first. Without it a server writes files only if ROCKETMQ_HOME is set, as it is where RocketMQ is
    installed: to logs/rocketmqlogs in the user's home, where RocketMQ writes its own.

    Args:
        broker: name of the folder for ``isolateLogEnable``.
    """
    if config.log_dir:
        folder = Path(config.log_dir).expanduser()
    elif os.environ.get(_HOME_VARIABLE):
        folder = Path.home() / "logs" / "rocketmqlogs"
    else:
        return None
    isolated = isinstance(config, BrokerLogSettings) and config.isolate_log_enable and broker
    return folder / broker if isolated else folder


class LogFile:
    """A log file that grows to a size, then is renamed; all calls come from one thread.

    Neither a full disk nor a folder that somebody removed ends it: lines are lost until the disk takes them again, and
    ``report`` gets a line when that begins and one when it is over. A file that cannot be renamed grows on instead.

    Args:
        path: the file; its renamed predecessors are ``otherdays/<stem>.1.log`` and so on, the youngest first.
        max_size: bytes at which it is renamed.
        max_num: number of renamed files that are kept.
        report: takes a line for the terminal.
        clock: monotonic time in seconds.
        mode: permissions of a new file.
    """

    def __init__(
        self,
        path: Path,
        max_size: int,
        max_num: int,
        report: Report,
        clock: Callable[[], float] = time.monotonic,
        mode: int = _MODE,
    ) -> None:
        self._path = path
        self._max_size = max_size
        self._max_num = max_num
        self._report = report
        self._clock = clock
        self._mode = mode
        self._descriptor = -1
        self._size = 0
        self._inode = (0, 0)
        # Times of the next look at the file's name, and of the next try after an error.
        self._look_at = self._retry_at = 0.0
        self._error = ""
        self._lost = 0
        self._is_torn = False
        # Time of the next try to rename after one that failed, and the reason.
        self._rename_at = 0.0
        self._rename_error = ""

    def write(self, line: bytes) -> None:
        """Append a line; it is lost if the disk does not take it."""
        now = self._clock()
        if self._error and now < self._retry_at:
            self._lost += 1
            return
        try:
            self._open(now)
            if self._size and self._size + len(line) > self._max_size and now >= self._rename_at:
                self._try_rename(now)
                self._open(now)
            self._append(line)
        except OSError as error:
            self._failed(error, now)
        else:
            self._succeeded()

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self, now: float) -> None:
        """Open the file, and open it again after a rename or removal by another tool."""
        if self._descriptor >= 0 and now >= self._look_at:
            self._look_at = now + _LOOK_S
            with contextlib.suppress(FileNotFoundError):
                found = self._path.stat()
                if (found.st_dev, found.st_ino) == self._inode:
                    return
            self.close()
        if self._descriptor < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode)
            self._lock()
            found = os.fstat(self._descriptor)
            self._size, self._inode = found.st_size, (found.st_dev, found.st_ino)
            self._look_at = now + _LOOK_S

    def _lock(self) -> None:
        """Lock the file: two processes that rename one file lose each other's lines.

        Raises:
            OSError: Another process has the file.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise OSError(
                0, "another process writes this file; give each its own logDir, or brokers isolateLogEnable=true"
            ) from None

    def _append(self, line: bytes) -> None:
        # A disk that has just become full takes the first part of a line: the next one begins on a line of its own.
        data = b"\n" + line if self._is_torn else line
        written = os.write(self._descriptor, data)
        self._size += written
        self._is_torn = written < len(data)
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _try_rename(self, now: float) -> None:
        """Rename the file; if it cannot be, say so once and write on: a file too long is better than lines lost."""
        try:
            self._rename()
        except OSError as error:
            self._rename_at = now + _LOOK_S
            reason = error.strerror or str(error)
            if reason != self._rename_error:
                self._rename_error = reason
                self._report(
                    f"log file {self._path} cannot be renamed to {OTHER_DAYS}/: {reason}; it grows beyond "
                    "logFileMaxSize until it can"
                )
        else:
            if self._rename_error:
                self._rename_error = ""
                self._report(f"log file {self._path} is renamed again")

    def _rename(self) -> None:
        folder = self._path.parent / OTHER_DAYS
        folder.mkdir(exist_ok=True)
        names = [folder / f"{self._path.stem}.{number}.log" for number in range(1, self._max_num + 1)]
        # Without the youngest the last try moved them all, and failed at the file itself.
        if names[0].exists():
            for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
                with contextlib.suppress(FileNotFoundError):
                    newer.replace(older)
        self._path.replace(names[0])
        self.close()

    def _failed(self, error: OSError, now: float) -> None:
        self.close()
        self._lost += 1
        self._retry_at = now + _LOOK_S
        reason = error.strerror or str(error)
        if reason != self._error:
            self._error = reason
            self._report(f"log file {self._path} cannot be written: {reason}; its lines are lost until it can")

    def _succeeded(self) -> None:
        if self._error:
            self._report(f"log file {self._path} is written again; {self._lost} lines were lost")
            self._error, self._lost = "", 0


class LogFiles(logging.Handler):
    """Handler that writes each record to the file of its logger.

    Args:
        folder: folder of the files.
        kind: the server.
        config: size and number of the files.
        report: takes a line for the terminal.
    """

    def __init__(self, folder: Path, kind: ServerKind, config: LogSettings, report: Report) -> None:
        super().__init__()
        self._folder = folder
        self._kind = kind
        self._config = config
        self._report = report
        self._files: dict[str, LogFile] = {}
        # Name of the file by name of the logger.
        self._names: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        name = self._names.get(record.name)
        if name is None:
            name = self._names[record.name] = self._name_of(record.name)
        file = self._files.get(name)
        if file is None:
            config = self._config
            path = self._folder / f"{name}.log"
            mode = _AUDIT_MODE if record.name == AUDIT_LOGGER else _MODE
            size, number = config.log_file_max_size, config.log_file_max_num
            file = LogFile(path, size, number, self._report, mode=mode)
            self._files[name] = file
        text = record.getMessage() if record.name in _DOCUMENTS else self.format(record)
        file.write(f"{text}\n".encode(errors="backslashreplace"))

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        super().close()

    def _name_of(self, logger: str) -> str:
        if logger in _DOCUMENTS:
            return f"{self._kind}_{_DOCUMENTS[logger]}"
        if self._kind != "broker":
            return self._kind
        found = (name for prefix, name in _BROKER_FILES if logger == prefix or logger.startswith(f"{prefix}."))
        return next(found, self._kind)

"""Log of a server: the terminal and its files are written by a thread each, so that no write holds the event loop."""

import json
import logging
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Self, TextIO

from rocketbroker.app.log_files import FILE_ONLY, LogFiles, ServerKind, log_folder
from rocketbroker.app.logging_setup import FORMAT, FloodFilter, LineFormatter, set_up_logging, truncated
from rocketbroker.auth.audit_log import AUDIT_LOGGER
from rocketbroker.common.config.log_settings import LogSettings

# Records that wait for one thread; further ones are dropped and counted.
_MOST_WAITING: Final = 10_000
# Seconds that the end of a process waits for a thread whose terminal or disk takes nothing.
_PATIENCE_S: Final = 2.0


class JsonFormatter(LineFormatter):
    """Format a record as one JSON object: ``time``, ``level``, ``logger``, ``thread``, ``message``, ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """Called by logging."""
        whole, rest = divmod(record.created, 1)
        moment = time.localtime(whole)
        fields = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(rest * 1000):03d}{_zone(moment)}",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": truncated(record.getMessage()),
        }
        if record.exc_text:
            fields["exception"] = record.exc_text
        return json.dumps(fields)  # ASCII alone: no character of a peer can break a line or steer a terminal


def _zone(moment: time.struct_time) -> str:
    """Return the offset to UTC as ``+01:00``."""
    text = time.strftime("%z", moment)
    return f"{text[:3]}:{text[3:]}"


class LogSink:
    """A handler behind a bounded queue and a thread of its own.

    ``put`` returns at once, however long the handler takes. A terminal that nobody reads, such as a full pipe, blocks
    the thread and nothing else: records beyond the bound are dropped, and the next line says how many.
    """

    def __init__(self, target: logging.Handler, name: str) -> None:
        self._target = target
        self._queue: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        # Counted by callers of ``put``, whose race may lose one, and by the thread.
        self._dropped = 0
        self._reported = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, record: logging.LogRecord) -> None:
        """Queue a record; drop it if too many wait."""
        if self._queue.qsize() >= _MOST_WAITING:
            self._dropped += 1
        else:
            self._queue.put(record)

    def stop(self) -> None:
        """Write what waits and end the thread; give up after 2 s."""
        self._queue.put(None)
        self._thread.join(_PATIENCE_S)
        if not self._thread.is_alive():
            self._target.close()

    def _run(self) -> None:
        while True:
            record = self._queue.get()
            dropped = self._dropped - self._reported
            if dropped:
                self._reported += dropped
                self._handle(own_record(f"{dropped} log lines were dropped: writing is slower than logging"))
            if record is None:
                return
            self._handle(record)

    def _handle(self, record: logging.LogRecord) -> None:
        """Write a record; one that cannot be written must not end the thread."""
        try:
            self._target.handle(record)
        except Exception:  # noqa: BLE001 - reported by the handler
            self._target.handleError(record)


def own_record(text: str) -> logging.LogRecord:
    """Return a record of the log itself."""
    return logging.LogRecord(__name__, logging.ERROR, __file__, 0, text, (), None)


class ServerLog(logging.Handler):
    """Root handler of a server; use it as a context manager around the life of the server.

    Args:
        config: folder, level and form.
        kind: the server.
        broker: folder of the files with ``isolateLogEnable``.
        terminal: stream of the lines on the terminal.
    """

    def __init__(self, config: LogSettings, kind: ServerKind, broker: str = "", terminal: TextIO | None = None) -> None:
        super().__init__()
        self._config = config
        self.folder: Path | None = log_folder(config, broker)
        self._formatter = JsonFormatter() if config.log_format == "json" else LineFormatter(FORMAT)
        self._flood = FloodFilter()
        stream: logging.Handler = _Terminal(terminal or sys.stderr)
        stream.setFormatter(self._formatter)
        self._terminal = LogSink(stream, "LogTerminal")
        self._files: LogSink | None = None
        if self.folder is not None:
            files = LogFiles(self.folder, kind, config, self._report)
            files.setFormatter(self._formatter)
            self._files = LogSink(files, "LogFiles")

    def __enter__(self) -> Self:
        set_up_logging(self._config.log_level or None)
        logging.getLogger().handlers[:] = [self]
        for name in FILE_ONLY:
            # As in rmq.broker.logback.xml, logLevel does not silence figures. Nor does it silence the audit.
            is_on = self._files is not None and (name != AUDIT_LOGGER or self._config.audit_log_enable)
            logging.getLogger(name).setLevel(logging.INFO if is_on else logging.CRITICAL)
        self._terminal.start()
        if self._files is not None:
            self._files.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Lines of the interpreter's end go to the terminal without a thread.
        set_up_logging(self._config.log_level or None)
        for sink in (self._files, self._terminal):
            if sink is not None:
                sink.stop()

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by logging; figures that are written by the clock are no flood, and the audit counts its own."""
        return record.name in FILE_ONLY or self._flood.filter(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, under the lock of this handler."""
        try:
            record = self._prepared(record)
        except Exception as error:  # noqa: BLE001 - a mistake in a log line must not fail the work that logs it
            place = f"{record.pathname}:{record.lineno}"
            record = own_record(f"the line of {record.name} at {place} cannot be formatted: {error!r}")
        if record.name not in FILE_ONLY:
            self._terminal.put(record)
        if self._files is not None:
            self._files.put(record)

    def _prepared(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record as text: its arguments may change before the thread takes it."""
        made = logging.makeLogRecord(record.__dict__)
        made.msg, made.args = record.getMessage(), None
        if record.exc_info:
            made.exc_text = record.exc_text or self._formatter.formatException(record.exc_info)
            made.exc_info = None
        return made

    def _report(self, text: str) -> None:
        self._terminal.put(own_record(text))


class _Terminal(logging.StreamHandler[TextIO]):
    """Terminal that may be gone: nobody is left to be told."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Called by logging."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        """Leave the stream open: it belongs to the process."""

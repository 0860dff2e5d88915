"""A store with messages of all kinds, for tests of store checks, and places in it to damage."""

from pathlib import Path
from typing import Any

from rocketbroker.audit.store_audit import AuditReport, audit
from rocketbroker.audit.store_files import AuditOptions
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.audit_rules import Severity
from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.store_file import offset_to_file_name
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.stores import LOG_FILE, QUEUE_FILE, V6_HOST, make_store, message, read_queue, store_config

MESSAGES = 400
#: A queue with two files, the second not full.
QUEUE = ("Topic0", 0)


def put_all(store: MessageStore, clock: FakeClock, count: int = MESSAGES) -> None:
    """Put messages of all kinds, and make them readable."""
    for number in range(count):
        properties = {"UNIQ_KEY": f"7F000001{number:024X}", "KEYS": f"k{number} all", "WAIT": "true"}
        if number % 4:
            properties["TAGS"] = f"tag{number % 3}" if number % 5 else "Etikett ä"
        topic = f"Topic{number % 3}" if number % 50 else "%RETRY%" + "g" * 140
        fields: dict[str, Any] = {"queue_id": number % 2, "properties": properties}
        if number % 40 == 7:
            topic, fields = RMQ_SYS_SCHEDULE_TOPIC, {"queue_id": 2, "properties": {"DELAY": "3", "TAGS": "x"}}
        if number % 30 == 13:
            fields["born_host"] = V6_HOST
        store.appender.put_message(message(b"body %d " % number * (number % 60), topic, **fields))
        clock.advance(0.25)
        if number % 7 == 0:
            store.appender.dispatch()
    store.appender.dispatch()


async def make_audited_store(root: Path, **settings) -> list[MessageExt]:
    """Fill and stop a store; return the messages of ``QUEUE``."""
    clock = FakeClock()
    store = make_store(root, clock, **settings)
    await store.start()
    put_all(store, clock)
    found = read_queue(store, *QUEUE)
    await store.stop()
    return found


def check(root: Path, options: AuditOptions | None = None, **settings) -> AuditReport:
    """Audit a store."""
    return audit(store_config(root, **settings), options or AuditOptions())


def errors(report: AuditReport) -> dict[str, int]:
    """Return the number of errors by rule."""
    return {rule.value: count for (rule, severity), count in report.counts.items() if severity is Severity.ERROR}


def warnings(report: AuditReport) -> dict[str, int]:
    """Return the number of warnings by rule."""
    return {rule.value: count for (rule, severity), count in report.counts.items() if severity is Severity.WARNING}


def log_place(root: Path, offset: int) -> tuple[Path, int]:
    """Return the file of the CommitLog, and position in it, of a physical offset."""
    position = offset % LOG_FILE
    return root / "commitlog" / offset_to_file_name(offset - position), position


def queue_place(root: Path, queue_offset: int, queue: tuple[str, int] = QUEUE) -> tuple[Path, int]:
    """Return the file of a ConsumeQueue, and position in it, of an entry."""
    at = queue_offset * CQ_STORE_UNIT_SIZE
    position = at % QUEUE_FILE
    return root / "consumequeue" / queue[0] / str(queue[1]) / offset_to_file_name(at - position), position


def patch(place: tuple[Path, int], data: bytes, at: int = 0) -> None:
    """Overwrite bytes at offset ``at`` from a place."""
    path, position = place
    with path.open("r+b") as file:
        file.seek(position + at)
        file.write(data)


def bytes_at(place: tuple[Path, int], length: int, at: int = 0) -> bytes:
    """Return the bytes at offset ``at`` from a place."""
    path, position = place
    return path.read_bytes()[position + at : position + at + length]

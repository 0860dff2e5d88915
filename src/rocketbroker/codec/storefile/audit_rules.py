"""Rules of a sound store, shared by `mqstore check` and `mqanalytics audit`.

Rules describe the fault, not the search for it, so that checks of one file, a whole store or many stores can share
them.
"""

from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """``error``: messages are lost, hidden or wrong. ``warning``: the next start repairs it, or it may be intended."""

    ERROR = "error"
    WARNING = "warning"


_CHECK: Final = "mqstore check"
_AUDIT: Final = "mqanalytics audit"


class AuditRule(StrEnum):
    """A rule by its name.

    Attributes:
        severity: its usual severity.
        meaning: the fault in words.
        tools: the commands that detect it. Only `mqstore check` looks for parts that this broker cannot read, and only
            `mqanalytics audit` for messages that are about to expire.
    """

    severity: Severity
    meaning: str
    tools: tuple[str, ...]

    def __new__(
        cls, name: str, severity: Severity, meaning: str, tools: tuple[str, ...] = (_CHECK, _AUDIT)
    ) -> "AuditRule":
        """Make a member whose value is its name."""
        rule = str.__new__(cls, name)
        rule._value_ = name
        rule.severity = severity
        rule.meaning = meaning
        rule.tools = tools
        return rule

    FOREIGN_PART = (
        "foreign-part",
        Severity.ERROR,
        "A part of the store is in a form of Apache's that this broker cannot read; it does not start with it.",
        (_CHECK,),
    )
    FILE_UNREADABLE = "file-unreadable", Severity.ERROR, "The system cannot read a file."
    LOG_FILE_MISSING = "log-file-missing", Severity.ERROR, "A file between two files of the CommitLog is missing."
    LOG_FILE_SIZE = "log-file-size", Severity.ERROR, "A CommitLog file has another size than the others."
    LOG_HOLE = "log-hole", Severity.ERROR, "The CommitLog has zeros between records."
    LOG_TORN_TAIL = (
        "log-torn-tail",
        Severity.WARNING,
        "The bytes after the last message are not a record; the next start truncates the CommitLog there.",
    )
    BLANK_SIZE = "blank-size", Severity.ERROR, "A BLANK, which closes a CommitLog file, does not reach to its end."
    RECORD_MAGIC = "record-magic", Severity.ERROR, "There is no known magic code where a record should begin."
    RECORD_LENGTH = "record-length", Severity.ERROR, "The lengths in a record do not add up to its totalSize."
    RECORD_POSITION = "record-position", Severity.ERROR, "The physicalOffset in a record is not that of its place."
    RECORD_CRC = "record-crc", Severity.ERROR, "The body of a record does not match its bodyCRC."
    QUEUE_FILE_MISSING = "queue-file-missing", Severity.ERROR, "A file between two files of a ConsumeQueue is missing."
    QUEUE_FILE_SIZE = "queue-file-size", Severity.ERROR, "A ConsumeQueue file has another size than the others."
    QUEUE_MISSING = (
        "queue-missing",
        Severity.WARNING,
        "Messages have no ConsumeQueue: their topic was deleted, or the next start rebuilds the queue.",
    )
    QUEUE_ENTRY_UNREADABLE = "queue-entry-unreadable", Severity.ERROR, "A ConsumeQueue entry leads to no record."
    QUEUE_ENTRY_BEYOND_LOG = (
        "queue-entry-beyond-log",
        Severity.ERROR,
        "A ConsumeQueue entry leads beyond the end of the CommitLog.",
    )
    QUEUE_ENTRY_MISMATCH = (
        "queue-entry-mismatch",
        Severity.ERROR,
        "A ConsumeQueue entry and its record differ in topic, queue, queue offset, size or tags code.",
    )
    QUEUE_OFFSET_MISSING = (
        "queue-offset-missing",
        Severity.ERROR,
        "A queue offset has neither message nor entry, though lower and higher ones have.",
    )
    QUEUE_OFFSET_REPEATED = "queue-offset-repeated", Severity.ERROR, "Two messages of a queue have one queue offset."
    QUEUE_OFFSET_ORDER = (
        "queue-offset-order",
        Severity.ERROR,
        "The queue offsets of a queue do not rise with the CommitLog.",
    )
    MESSAGE_NOT_QUEUED = "message-not-queued", Severity.ERROR, "No ConsumeQueue entry leads to a message."
    INDEX_HEADER = "index-header", Severity.ERROR, "Size or header of an index file do not match its content."
    INDEX_CHAIN = (
        "index-chain",
        Severity.ERROR,
        "A slot or an entry of an index file does not name the newest entry before it with its slot.",
    )
    INDEX_ENTRY_UNREADABLE = "index-entry-unreadable", Severity.ERROR, "An index entry leads to no record."
    INDEX_ENTRY_MISMATCH = (
        "index-entry-mismatch",
        Severity.ERROR,
        "An index entry leads to a record without that key, or with another store time.",
    )
    INDEX_MISSING_KEY = "index-missing-key", Severity.ERROR, "A key or unique id of a message is not in the index."
    CONFIG_DAMAGED = "config-damaged", Severity.ERROR, "A file of config/ does not hold a JSON object with its table."
    CONFIG_BACKUP_DAMAGED = (
        "config-backup-damaged",
        Severity.WARNING,
        "The .bak of a file of config/ does not hold a JSON object, so that it could not replace the file.",
    )
    CONSUMER_OFFSET_BEYOND_QUEUE = (
        "consumer-offset-beyond-queue",
        Severity.ERROR,
        "A group's consumer offset is beyond the end of the queue: it would skip new messages.",
    )
    UNCONSUMED_EXPIRING = (
        "unconsumed-expiring",
        Severity.WARNING,
        "Messages that a group has not consumed will soon be removed by age.",
        (_AUDIT,),
    )
    CHECKPOINT_DAMAGED = "checkpoint-damaged", Severity.ERROR, "The checkpoint is too short, or its times are invalid."
    CHECKPOINT_AHEAD = (
        "checkpoint-ahead",
        Severity.WARNING,
        "The checkpoint names a time after that of the newest message in the CommitLog.",
    )

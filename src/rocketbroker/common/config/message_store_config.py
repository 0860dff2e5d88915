"""Settings of the store; answers to org.apache.rocketmq.store.config.MessageStoreConfig."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from rocketbroker.common.config.fields import ConfigModel, FilePath, Flag, Text, Trait, Whole, setting
from rocketbroker.common.config.texts import OptionalPath

CQ_STORE_UNIT_SIZE = 20
BATCH_CQ_STORE_UNIT_SIZE = 46
_INT_MAX = 2**31 - 1
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_DAY_MS = 86_400_000
_MOST_LEVELS = 255
_HOURS_MAX = 255
_HOURS_OF_DAY = 24
_TIMER_PRECISIONS_MS = (100, 200, 500, 1_000)
_LEVEL = re.compile(r"[1-9][0-9]{0,8}[smhd]\Z")
_PATH = Trait(important=True, takes="a path")
_HOT = Trait(hot=True)
_MS = Trait(unit="ms")
_HOT_MS = Trait(unit="ms", hot=True)
_HOT_PERCENT = Trait(unit="%", hot=True)
_HOT_BYTES = Trait(unit="bytes", hot=True)
_TRANSFER_BYTES = Trait(unit="bytes", hot=True, important=True)
_HOT_IMPORTANT = Trait(hot=True, important=True)

_REFUSED_ROLES = {
    "SLAVE": "refused: this version has no replication, and a slave without it would take writes of its own; "
    "use ASYNC_MASTER",
    "SYNC_MASTER": "refused: this version has no replication, so its synchronous acknowledgement would be false; "
    "use ASYNC_MASTER",
}


def _upper(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _check_role(value: object) -> object:
    role = _upper(value)
    if isinstance(role, str) and role in _REFUSED_ROLES:
        raise ValueError(_REFUSED_ROLES[role])
    return role


def _check_levels(value: str) -> str:
    levels = value.split(" ")
    if not value or len(levels) > _MOST_LEVELS or not all(_LEVEL.match(level) for level in levels):
        raise ValueError("not a level list")
    return value


def _check_hours(value: str) -> str:
    if len(value) > _HOURS_MAX:
        raise ValueError("too long")
    hours = value.removesuffix(";").split(";")
    if not all(hour.isascii() and hour.isdigit() and int(hour) < _HOURS_OF_DAY for hour in hours):
        raise ValueError("not hours")
    return value


def _check_one_directory(value: str) -> str:
    if "," in value:
        raise ValueError("refused: this version keeps the commit log in one directory, not in several joined by ','")
    return value


def _whole_units(value: int) -> int:
    """MessageStoreConfig.getMappedFileSizeConsumeQueue: rounded up to whole 20-byte entries."""
    return -(-value // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE


def _whole_batch_units(value: int) -> int:
    """Rounded up to whole 46-byte entries: RocketMQ could not fill a file with another size."""
    return -(-value // BATCH_CQ_STORE_UNIT_SIZE) * BATCH_CQ_STORE_UNIT_SIZE


def _supported_precision(value: int) -> int:
    """MessageStoreConfig.setTimerPrecisionMs: the next lower value there is."""
    return max((precision for precision in _TIMER_PRECISIONS_MS if precision <= value), default=_TIMER_PRECISIONS_MS[0])


BrokerRole = Annotated[Literal["ASYNC_MASTER"], BeforeValidator(_check_role)]
FlushDiskType = Annotated[Literal["ASYNC_FLUSH", "SYNC_FLUSH"], BeforeValidator(_upper)]
OneDirectory = Annotated[OptionalPath, AfterValidator(_check_one_directory)]
Hours = Annotated[Text, AfterValidator(_check_hours)]
DelayLevels = Annotated[Text, AfterValidator(_check_levels)]
TimerPrecision = Annotated[Whole, AfterValidator(_supported_precision)]
ConsumeQueueSize = Annotated[Whole, AfterValidator(_whole_units)]
BatchConsumeQueueSize = Annotated[Whole, AfterValidator(_whole_batch_units)]


class MessageStoreConfig(ConfigModel):
    """Where the store's files are, how large they are, when they are flushed and how much a pull may take."""

    store_path_root_dir: FilePath = setting(
        "storePathRootDir",
        lambda: str(Path.home() / "store"),
        "Directory of everything the broker stores.",
        Trait(important=True, takes="a path", shown_default="$HOME/store"),
    )
    store_path_commit_log: OneDirectory = setting(
        "storePathCommitLog", "", "Directory of the commit log; empty means <root>/commitlog.", _PATH
    )
    store_path_consume_queue: OptionalPath = setting(
        "storePathConsumeQueue",
        "",
        "Directory of the consume queues; empty means <root>/consumequeue.",
        Trait(takes="a path", own=True),
    )
    store_path_index: OptionalPath = setting(
        "storePathIndex",
        "",
        "Directory of the index files; empty means <root>/index.",
        Trait(takes="a path", own=True),
    )
    store_checkpoint: OptionalPath = setting(
        "storeCheckpoint", "", "The checkpoint file; empty means <root>/checkpoint.", Trait(takes="a path", own=True)
    )
    abort_file: OptionalPath = setting(
        "abortFile", "", "The abort file; empty means <root>/abort.", Trait(takes="a path", own=True)
    )
    mapped_file_size_commit_log: Whole = setting(
        "mappedFileSizeCommitLog",
        1_073_741_824,
        "Size of one commit log file.",
        Trait(unit="bytes"),
        low=4_096,
        high=_INT_MAX,
    )
    mapped_file_size_consume_queue: ConsumeQueueSize = setting(
        "mappedFileSizeConsumeQueue",
        6_000_000,
        "Size of one consume queue file, rounded up to whole entries of 20 bytes.",
        Trait(unit="bytes"),
        low=CQ_STORE_UNIT_SIZE,
        high=_INT_MAX // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE,
    )
    mapper_file_size_batch_consume_queue: BatchConsumeQueueSize = setting(
        "mapperFileSizeBatchConsumeQueue",
        13_800_000,
        "Size of one file of the queues of a topic with `queue.type=BatchCQ`, rounded up to whole entries of 46 bytes.",
        Trait(unit="bytes"),
        low=BATCH_CQ_STORE_UNIT_SIZE,
        high=_INT_MAX // BATCH_CQ_STORE_UNIT_SIZE * BATCH_CQ_STORE_UNIT_SIZE,
    )
    message_index_enable: Flag = setting(
        "messageIndexEnable",
        True,
        "Write index files, by which messages are found by key and unique id.",
        Trait(important=True),
    )
    max_hash_slot_num: Whole = setting(
        "maxHashSlotNum", 5_000_000, "Hash slots of one index file.", low=1, high=100_000_000
    )
    max_index_num: Whole = setting(
        "maxIndexNum",
        20_000_000,
        "Entries of one index file, of which the first is never used.",
        low=2,
        high=100_000_000,
    )
    max_keys_per_message: Whole = setting(
        "maxKeysPerMessage",
        128,
        "Most keys (KEYS, parted by blanks) of a message that is sent; each takes 20 bytes of the index.",
        Trait(own=True),
        low=1,
        high=32_767,
    )
    max_msgs_num_batch: Whole = setting(
        "maxMsgsNumBatch", 64, "Most messages that one QUERY_MESSAGE looks up.", _HOT, low=1, high=10_000
    )
    max_index_entries_per_query: Whole = setting(
        "maxIndexEntriesPerQuery",
        5_000_000,
        "Entries of the index that one QUERY_MESSAGE looks at; one that needs more is refused with SYSTEM_ERROR.",
        Trait(hot=True, own=True),
        low=20_000,
        high=1_000_000_000,
    )
    default_query_max_num: Whole = setting(
        "defaultQueryMaxNum", 32, "Messages that a query by unique id returns at most.", _HOT, low=1, high=10_000
    )
    flush_disk_type: FlushDiskType = setting(
        "flushDiskType",
        "ASYNC_FLUSH",
        "Whether a send is acknowledged before (ASYNC_FLUSH) or after (SYNC_FLUSH) it is on disk.",
        Trait(important=True, takes="ASYNC_FLUSH or SYNC_FLUSH"),
    )
    sync_flush_timeout: Whole = setting(
        "syncFlushTimeout",
        5_000,
        "SYNC_FLUSH: a send waiting longer than this is answered FLUSH_DISK_TIMEOUT.",
        _HOT_MS,
        low=1,
        high=10 * _MINUTE_MS,
    )
    flush_interval_commit_log: Whole = setting(
        "flushIntervalCommitLog",
        500,
        "How often the commit log is flushed.",
        Trait(unit="ms", important=True),
        low=1,
        high=_MINUTE_MS,
    )
    flush_commit_log_least_pages: Whole = setting(
        "flushCommitLogLeastPages",
        4,
        "Pages of 4,096 bytes that must have been written for the commit log to be flushed at its interval.",
        _HOT,
        low=0,
        high=16_384,
    )
    flush_commit_log_thorough_interval: Whole = setting(
        "flushCommitLogThoroughInterval",
        10_000,
        "How often the commit log is flushed, however little was written.",
        _HOT_MS,
        low=1,
        high=10 * _MINUTE_MS,
    )
    flush_interval_consume_queue: Whole = setting(
        "flushIntervalConsumeQueue", 1_000, "How often the consume queues are flushed.", _MS, low=1, high=_MINUTE_MS
    )
    os_page_cache_busy_time_out_mills: Whole = setting(
        "osPageCacheBusyTimeOutMills",
        1_000,
        "How long a send waits for blocks of the commit log; then sends are refused with SYSTEM_BUSY until they come.",
        _MS,
        low=1,
        high=10_000,
    )
    file_reserved_time: Whole = setting(
        "fileReservedTime",
        72,
        "How long a commit log file is kept after its last change.",
        Trait(unit="h", hot=True, important=True),
        low=1,
        high=876_000,
    )
    delete_when: Hours = setting(
        "deleteWhen",
        "04",
        "Hours of the day, local time, in which expired commit log files are removed.",
        Trait(hot=True, important=True, takes="hours from 0 to 23 joined by ';'"),
    )
    clean_resource_interval: Whole = setting(
        "cleanResourceInterval",
        10_000,
        "How often it is looked for files to remove and for the room on the disks.",
        _HOT_MS,
        low=10,
        high=10 * _MINUTE_MS,
    )
    delete_file_batch_max: Whole = setting(
        "deleteFileBatchMax",
        10,
        "Most commit log files removed in one go; the next go comes after cleanResourceInterval.",
        _HOT_IMPORTANT,
        low=1,
        high=10_000,
    )
    delete_commit_log_files_interval: Whole = setting(
        "deleteCommitLogFilesInterval",
        100,
        "Pause between two commit log files that are removed.",
        _HOT_MS,
        low=0,
        high=_MINUTE_MS,
    )
    delete_consume_queue_files_interval: Whole = setting(
        "deleteConsumeQueueFilesInterval",
        100,
        "Pause between two consume queue or index files that are removed.",
        _HOT_MS,
        low=0,
        high=_MINUTE_MS,
    )
    redelete_hanged_file_interval: Whole = setting(
        "redeleteHangedFileInterval",
        120_000,
        "A file that the disk refused to remove is tried again after this time.",
        _HOT_MS,
        low=1,
        high=_HOUR_MS,
    )
    destroy_maped_file_interval_forcibly: Whole = setting(
        "destroyMapedFileIntervalForcibly",
        120_000,
        "Forced removal counts so long on the room of a removed file whose messages are still on their way.",
        _HOT_MS,
        low=0,
        high=_HOUR_MS,
    )
    disk_max_used_space_ratio: Whole = setting(
        "diskMaxUsedSpaceRatio",
        75,
        "A disk fuller than this has expired commit log files removed at any hour.",
        _HOT_PERCENT,
        low=10,
        high=100,
    )
    disk_space_clean_forcibly_ratio: Whole = setting(
        "diskSpaceCleanForciblyRatio",
        85,
        "A disk fuller than this has the oldest commit log files removed, expired or not, if cleanFileForciblyEnable.",
        _HOT_PERCENT,
        low=30,
        high=100,
    )
    disk_space_warning_level_ratio: Whole = setting(
        "diskSpaceWarningLevelRatio",
        90,
        "A disk fuller than this has sends refused until there is room again; 100 never refuses for this reason.",
        _HOT_PERCENT,
        low=35,
        high=100,
    )
    clean_file_forcibly_enable: Flag = setting(
        "cleanFileForciblyEnable",
        True,
        "Whether unexpired messages, consumed or not, may be removed where diskSpaceCleanForciblyRatio is exceeded.",
        _HOT_IMPORTANT,
    )
    max_message_size: Whole = setting(
        "maxMessageSize", 4_194_304, "Longest message body that is taken.", _HOT_BYTES, low=1, high=1 << 28
    )
    max_transfer_bytes_on_message_in_memory: Whole = setting(
        "maxTransferBytesOnMessageInMemory",
        262_144,
        "Most bytes one pull returns from the part of the log held in memory.",
        _TRANSFER_BYTES,
        low=1,
        high=1 << 28,
    )
    max_transfer_count_on_message_in_memory: Whole = setting(
        "maxTransferCountOnMessageInMemory",
        32,
        "Most messages one pull returns from the part of the log held in memory.",
        _HOT_IMPORTANT,
        low=1,
        high=100_000,
    )
    max_transfer_bytes_on_message_in_disk: Whole = setting(
        "maxTransferBytesOnMessageInDisk",
        65_536,
        "Most bytes one pull returns from the part of the log that is only on disk.",
        _TRANSFER_BYTES,
        low=1,
        high=1 << 28,
    )
    max_transfer_count_on_message_in_disk: Whole = setting(
        "maxTransferCountOnMessageInDisk",
        8,
        "Most messages one pull returns from the part of the log that is only on disk.",
        _HOT_IMPORTANT,
        low=1,
        high=100_000,
    )
    access_message_in_memory_max_ratio: Whole = setting(
        "accessMessageInMemoryMaxRatio",
        40,
        "Share of the machine's memory; what lies further back than this in the log is checked before a consumer gets "
        "it, and counts as on disk unless the kernel has it in its page cache.",
        Trait(unit="%", important=True),
        low=1,
        high=100,
    )
    max_filter_message_size: Whole = setting(
        "maxFilterMessageSize",
        16_000,
        "Bytes of a consume queue that one pull scans at most for messages that match its filter.",
        _HOT_BYTES,
        low=CQ_STORE_UNIT_SIZE,
        high=1 << 28,
    )
    message_delay_level: DelayLevels = setting(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the levels 1, 2, ...",
        Trait(takes="up to 255 numbers with s, m, h or d, joined by single blanks"),
    )
    flush_delay_offset_interval: Whole = setting(
        "flushDelayOffsetInterval",
        10_000,
        "How often config/delayOffset.json is written.",
        _HOT_MS,
        low=100,
        high=10 * _MINUTE_MS,
    )
    timer_wheel_enable: Flag = setting(
        "timerWheelEnable", True, "Take timer messages, which are delivered at any time that they give.", _HOT
    )
    timer_precision_ms: TimerPrecision = setting(
        "timerPrecisionMs",
        1_000,
        "Timer messages that are due within so long are delivered together, at its end; counts as the next lower of "
        "100, 200, 500 and 1000. Another one holds once no message waits that was stored with the one before.",
        _MS,
        low=1,
        high=_DAY_MS,
    )
    timer_max_delay_sec: Whole = setting(
        "timerMaxDelaySec",
        259_200,
        "How far ahead the time of a timer message may be.",
        Trait(unit="s", hot=True),
        low=1,
        high=_INT_MAX,
    )
    timer_roll_window_slot: Whole = setting(
        "timerRollWindowSlot",
        172_800,
        "Timer messages that have to wait for so many times timerPrecisionMs are stored again after it.",
        None,
        low=2,
        high=_INT_MAX,
    )
    timer_flush_interval_ms: Whole = setting(
        "timerFlushIntervalMs",
        1_000,
        "How often config/timerProgress.json is written, which says what timer messages were delivered.",
        _HOT_MS,
        low=100,
        high=_MINUTE_MS,
    )
    broker_role: BrokerRole = setting(
        "brokerRole", "ASYNC_MASTER", "Role in replication.", Trait(important=True, takes="ASYNC_MASTER")
    )
    ha_listen_port: Whole = setting(
        "haListenPort",
        10_912,
        "Port that slaves are told to connect to; listenPort plus 1 unless it is given.",
        Trait(shown_default="listenPort + 1"),
        low=0,
        high=65_535,
    )

    @property
    def commit_log_dir(self) -> Path:
        """Directory of the commit log files."""
        return Path(self.store_path_commit_log or Path(self.store_path_root_dir, "commitlog"))

    @property
    def consume_queue_dir(self) -> Path:
        """Directory that holds `<topic>/<queueId>/`."""
        return Path(self.store_path_consume_queue or Path(self.store_path_root_dir, "consumequeue"))

    @property
    def batch_consume_queue_dir(self) -> Path:
        """Directory that holds `<topic>/<queueId>/` of topics with `queue.type=BatchCQ`."""
        return Path(self.store_path_root_dir, "batchconsumequeue")

    @property
    def index_dir(self) -> Path:
        """Directory of the index files."""
        return Path(self.store_path_index or Path(self.store_path_root_dir, "index"))

    @property
    def checkpoint_path(self) -> Path:
        """The checkpoint file."""
        return Path(self.store_checkpoint or Path(self.store_path_root_dir, "checkpoint"))

    @property
    def abort_path(self) -> Path:
        """The file that exists while the broker runs."""
        return Path(self.abort_file or Path(self.store_path_root_dir, "abort"))

    @property
    def config_dir(self) -> Path:
        """Directory of topics.json, consumerOffset.json and the like."""
        return Path(self.store_path_root_dir, "config")

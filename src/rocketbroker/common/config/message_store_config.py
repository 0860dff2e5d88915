"""Settings of the store and of replication (org.apache.rocketmq.store.config.MessageStoreConfig)."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from rocketbroker.common.config.fields import (
    ConfigModel,
    FilePath,
    Flag,
    OptionalPath,
    Text,
    Trait,
    Whole,
    is_host,
    setting,
    strip,
)

_PORT_MAX = 65_535
_PORT_DIGITS = 5
_INT_MAX = 2**31 - 1
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
# Apache's slave has a buffer of 4 MiB.
_HA_BODY_MAX = 4 * 1024 * 1024 - 12
_MS = Trait(unit="ms")
_HOT = Trait(hot=True)
_HOT_MS = Trait(unit="ms", hot=True)
_HOT_BYTES = Trait(unit="bytes", hot=True)


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS and 0 < int(port) <= _PORT_MAX
    if value and not (is_port and is_host(host.removeprefix("[").removesuffix("]"))):
        raise ValueError("not an address")
    return value


BrokerRole = Annotated[Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"], BeforeValidator(strip)]
Address = Annotated[Text, AfterValidator(_check_address)]


class HASettings(ConfigModel):
    """Role, HA port, intervals and acknowledgement by slaves."""

    broker_role: BrokerRole = setting(
        "brokerRole",
        "ASYNC_MASTER",
        "Role in replication: a slave copies the messages of its master and takes none; SYNC_MASTER waits for "
        "inSyncReplicas before it acknowledges a message.",
        Trait(important=True, takes="ASYNC_MASTER, SYNC_MASTER or SLAVE"),
    )
    ha_listen_port: Whole = setting(
        "haListenPort",
        10_912,
        "Port that slaves connect to, as registered with the name servers; by default listenPort plus 1.",
        Trait(shown_default="listenPort + 1"),
        low=0,
        high=65_535,
    )
    ha_master_address: Address = setting(
        "haMasterAddress",
        "",
        "HA address of a slave's master; empty asks the name servers for the master of its brokerName.",
        Trait(takes="host:port, or empty"),
    )
    ha_send_heartbeat_interval: Whole = setting(
        "haSendHeartbeatInterval",
        5_000,
        "Interval at which an idle master or slave sends a heartbeat to the other.",
        _MS,
        low=10,
        high=_HOUR_MS,
    )
    ha_housekeeping_interval: Whole = setting(
        "haHousekeepingInterval",
        20_000,
        "Time without a byte of the other after which a master or slave closes their connection.",
        _HOT_MS,
        low=100,
        high=_HOUR_MS,
    )
    ha_transfer_batch_size: Whole = setting(
        "haTransferBatchSize",
        32_768,
        "Maximum number of bytes of the log that a master sends in one transfer.",
        _HOT_BYTES,
        low=1,
        high=_HA_BODY_MAX,
    )
    ha_max_gap_not_in_sync: Whole = setting(
        "haMaxGapNotInSync",
        268_435_456,
        "Bytes behind its master from which on a slave counts as not in sync (mqadmin haStatus).",
        _HOT_BYTES,
        low=1,
        high=_INT_MAX,
    )
    in_sync_replicas: Whole = setting(
        "inSyncReplicas",
        1,
        "Brokers that must have a message before a SYNC_MASTER acknowledges it, itself included; as in RocketMQ, 1 "
        "waits for no slave.",
        _HOT,
        low=1,
        high=64,
    )
    slave_timeout: Whole = setting(
        "slaveTimeout",
        3_000,
        "Longest wait of a send for slaves (SYNC_MASTER); then it is answered FLUSH_SLAVE_TIMEOUT.",
        _HOT_MS,
        low=1,
        high=10 * _MINUTE_MS,
    )


CQ_STORE_UNIT_SIZE = 20
BATCH_CQ_STORE_UNIT_SIZE = 46
_DAY_MS = 86_400_000
_MOST_LEVELS = 255
_HOURS_MAX = 255
_HOURS_OF_DAY = 24
_TIMER_PRECISIONS_MS = (100, 200, 500, 1_000)
_LEVEL = re.compile(r"[1-9][0-9]{0,8}[smhd]\Z")
_PATH = Trait(important=True, takes="a path")
_HOT_PERCENT = Trait(unit="%", hot=True)
_TRANSFER_BYTES = Trait(unit="bytes", hot=True, important=True)
_HOT_IMPORTANT = Trait(hot=True, important=True)


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
        raise ValueError("rejected: this version keeps the commit log in one directory; give one path without ','")
    return value


def _whole_units(value: int) -> int:
    """Round up to whole 20-byte entries (MessageStoreConfig.getMappedFileSizeConsumeQueue)."""
    return -(-value // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE


def _whole_batch_units(value: int) -> int:
    """Round up to whole 46-byte entries, because RocketMQ cannot fill a file of another size."""
    return -(-value // BATCH_CQ_STORE_UNIT_SIZE) * BATCH_CQ_STORE_UNIT_SIZE


def _supported_precision(value: int) -> int:
    """Round down to a supported precision (MessageStoreConfig.setTimerPrecisionMs)."""
    return max((precision for precision in _TIMER_PRECISIONS_MS if precision <= value), default=_TIMER_PRECISIONS_MS[0])


FlushDiskType = Annotated[Literal["ASYNC_FLUSH", "SYNC_FLUSH"], BeforeValidator(strip)]
OneDirectory = Annotated[OptionalPath, AfterValidator(_check_one_directory)]
Hours = Annotated[Text, AfterValidator(_check_hours)]
DelayLevels = Annotated[Text, AfterValidator(_check_levels)]
TimerPrecision = Annotated[Whole, AfterValidator(_supported_precision)]
ConsumeQueueSize = Annotated[Whole, AfterValidator(_whole_units)]
BatchConsumeQueueSize = Annotated[Whole, AfterValidator(_whole_batch_units)]


class MessageStoreConfig(HASettings):
    """Paths, sizes, flushing and retention of the store's files, and limits of a pull."""

    store_path_root_dir: FilePath = setting(
        "storePathRootDir",
        lambda: str(Path.home() / "store"),
        "Directory of all data of the broker.",
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
        "storeCheckpoint",
        "",
        "Path of the checkpoint file; empty means <root>/checkpoint.",
        Trait(takes="a path", own=True),
    )
    abort_file: OptionalPath = setting(
        "abortFile", "", "Path of the abort file; empty means <root>/abort.", Trait(takes="a path", own=True)
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
        "Size of one queue file of a topic with `queue.type=BatchCQ`, rounded up to whole entries of 46 bytes.",
        Trait(unit="bytes"),
        low=BATCH_CQ_STORE_UNIT_SIZE,
        high=_INT_MAX // BATCH_CQ_STORE_UNIT_SIZE * BATCH_CQ_STORE_UNIT_SIZE,
    )
    message_index_enable: Flag = setting(
        "messageIndexEnable",
        True,
        "Write index files, which queries by key and unique id need.",
        Trait(important=True),
    )
    max_hash_slot_num: Whole = setting(
        "maxHashSlotNum", 5_000_000, "Hash slots of one index file.", low=1, high=100_000_000
    )
    max_index_num: Whole = setting(
        "maxIndexNum",
        20_000_000,
        "Entries of one index file; the first is never used.",
        low=2,
        high=100_000_000,
    )
    max_keys_per_message: Whole = setting(
        "maxKeysPerMessage",
        128,
        "Maximum number of keys in a sent message (KEYS, separated by blanks); each takes 20 bytes of the index. "
        "A single message to a trace topic may have 2,048 if that is more.",
        Trait(own=True),
        low=1,
        high=32_767,
    )
    max_messages_per_batch: Whole = setting(
        "maxMessagesPerBatch",
        16_384,
        "Maximum number of messages in a batch; one with more, or with four times as many index keys, is rejected "
        "with MESSAGE_ILLEGAL. Batches of a topic with queue.type=BatchCQ may have 32,767.",
        Trait(hot=True, own=True),
        # The requests of one read have fewer messages, so runs of batches need no check. The ids of 400,000 fit into
        # the header of an answer.
        low=12_000,
        high=400_000,
    )
    max_msgs_num_batch: Whole = setting(
        "maxMsgsNumBatch", 64, "Maximum number of messages that one QUERY_MESSAGE looks up.", _HOT, low=1, high=10_000
    )
    max_index_entries_per_query: Whole = setting(
        "maxIndexEntriesPerQuery",
        5_000_000,
        "Maximum number of index entries that one QUERY_MESSAGE reads; one that needs more is rejected with "
        "SYSTEM_ERROR.",
        Trait(hot=True, own=True),
        low=20_000,
        high=1_000_000_000,
    )
    default_query_max_num: Whole = setting(
        "defaultQueryMaxNum",
        32,
        "Maximum number of messages that a query by unique id returns.",
        _HOT,
        low=1,
        high=10_000,
    )
    flush_disk_type: FlushDiskType = setting(
        "flushDiskType",
        "ASYNC_FLUSH",
        "Acknowledge a send before (ASYNC_FLUSH) or after (SYNC_FLUSH) it is on disk.",
        Trait(important=True, takes="ASYNC_FLUSH or SYNC_FLUSH"),
    )
    sync_flush_timeout: Whole = setting(
        "syncFlushTimeout",
        5_000,
        "Longest wait of a send for the disk (SYNC_FLUSH); then it is answered FLUSH_DISK_TIMEOUT.",
        _HOT_MS,
        low=1,
        high=10 * _MINUTE_MS,
    )
    flush_interval_commit_log: Whole = setting(
        "flushIntervalCommitLog",
        500,
        "Interval at which the commit log is flushed.",
        Trait(unit="ms", important=True),
        low=1,
        high=_MINUTE_MS,
    )
    flush_commit_log_least_pages: Whole = setting(
        "flushCommitLogLeastPages",
        4,
        "Minimum of written pages of 4,096 bytes for the commit log to be flushed at its interval.",
        _HOT,
        low=0,
        high=16_384,
    )
    flush_commit_log_thorough_interval: Whole = setting(
        "flushCommitLogThoroughInterval",
        10_000,
        "Interval at which the commit log is flushed regardless of flushCommitLogLeastPages.",
        _HOT_MS,
        low=1,
        high=10 * _MINUTE_MS,
    )
    flush_interval_consume_queue: Whole = setting(
        "flushIntervalConsumeQueue",
        1_000,
        "Interval at which the consume queues are flushed.",
        _MS,
        low=1,
        high=_MINUTE_MS,
    )
    os_page_cache_busy_time_out_mills: Whole = setting(
        "osPageCacheBusyTimeOutMills",
        1_000,
        "Longest wait of a send for blocks of the commit log; then sends are rejected with SYSTEM_BUSY until it gets "
        "them.",
        _MS,
        low=1,
        high=10_000,
    )
    file_reserved_time: Whole = setting(
        "fileReservedTime",
        72,
        "Time for which a commit log file is kept after its last change.",
        Trait(unit="h", hot=True, important=True),
        low=1,
        high=876_000,
    )
    delete_when: Hours = setting(
        "deleteWhen",
        "04",
        "Hours of the day (local time) in which expired commit log files are removed.",
        Trait(hot=True, important=True, takes="hours from 0 to 23 joined by ';'"),
    )
    clean_resource_interval: Whole = setting(
        "cleanResourceInterval",
        10_000,
        "Interval at which disk space is checked and expired files are removed.",
        _HOT_MS,
        low=10,
        high=10 * _MINUTE_MS,
    )
    delete_file_batch_max: Whole = setting(
        "deleteFileBatchMax",
        10,
        "Maximum number of commit log files removed in one pass; the next pass follows after cleanResourceInterval.",
        _HOT_IMPORTANT,
        low=1,
        high=10_000,
    )
    delete_commit_log_files_interval: Whole = setting(
        "deleteCommitLogFilesInterval",
        100,
        "Pause between the removals of two commit log files.",
        _HOT_MS,
        low=0,
        high=_MINUTE_MS,
    )
    delete_consume_queue_files_interval: Whole = setting(
        "deleteConsumeQueueFilesInterval",
        100,
        "Pause between the removals of two consume queue or index files.",
        _HOT_MS,
        low=0,
        high=_MINUTE_MS,
    )
    redelete_hanged_file_interval: Whole = setting(
        "redeleteHangedFileInterval",
        120_000,
        "Time after which a failed removal of a file is retried.",
        _HOT_MS,
        low=1,
        high=_HOUR_MS,
    )
    destroy_maped_file_interval_forcibly: Whole = setting(
        "destroyMapedFileIntervalForcibly",
        120_000,
        "Time for which forced removal counts the space of a removed file as free while its messages are still being "
        "sent.",
        _HOT_MS,
        low=0,
        high=_HOUR_MS,
    )
    disk_max_used_space_ratio: Whole = setting(
        "diskMaxUsedSpaceRatio",
        75,
        "Disk usage above which expired commit log files are removed at any hour.",
        _HOT_PERCENT,
        low=10,
        high=100,
    )
    disk_space_clean_forcibly_ratio: Whole = setting(
        "diskSpaceCleanForciblyRatio",
        85,
        "Disk usage above which the oldest commit log files are removed, expired or not (cleanFileForciblyEnable).",
        _HOT_PERCENT,
        low=30,
        high=100,
    )
    disk_space_warning_level_ratio: Whole = setting(
        "diskSpaceWarningLevelRatio",
        90,
        "Disk usage above which sends are rejected until space is free; 100 never rejects for this reason.",
        _HOT_PERCENT,
        low=35,
        high=100,
    )
    clean_file_forcibly_enable: Flag = setting(
        "cleanFileForciblyEnable",
        True,
        "Remove unexpired messages, consumed or not, while diskSpaceCleanForciblyRatio is exceeded.",
        _HOT_IMPORTANT,
    )
    max_message_size: Whole = setting(
        "maxMessageSize",
        4_194_304,
        "Maximum size of a sent body. Stored messages that are longer are delivered and retried all the same.",
        _HOT_BYTES,
        low=1,
        high=1 << 28,
    )
    max_transfer_bytes_on_message_in_memory: Whole = setting(
        "maxTransferBytesOnMessageInMemory",
        262_144,
        "Maximum number of bytes that one pull returns from the part of the log in memory.",
        _TRANSFER_BYTES,
        low=1,
        high=1 << 28,
    )
    max_transfer_count_on_message_in_memory: Whole = setting(
        "maxTransferCountOnMessageInMemory",
        32,
        "Maximum number of messages that one pull returns from the part of the log in memory.",
        _HOT_IMPORTANT,
        low=1,
        high=100_000,
    )
    max_transfer_bytes_on_message_in_disk: Whole = setting(
        "maxTransferBytesOnMessageInDisk",
        65_536,
        "Maximum number of bytes that one pull returns from the part of the log on disk only.",
        _TRANSFER_BYTES,
        low=1,
        high=1 << 28,
    )
    max_transfer_count_on_message_in_disk: Whole = setting(
        "maxTransferCountOnMessageInDisk",
        8,
        "Maximum number of messages that one pull returns from the part of the log on disk only.",
        _HOT_IMPORTANT,
        low=1,
        high=100_000,
    )
    access_message_in_memory_max_ratio: Whole = setting(
        "accessMessageInMemoryMaxRatio",
        40,
        "Share of the machine's memory. Messages further back in the log than this are checked before delivery, and "
        "count as on disk unless they are in the page cache.",
        Trait(unit="%", important=True),
        low=1,
        high=100,
    )
    max_filter_message_size: Whole = setting(
        "maxFilterMessageSize",
        16_000,
        "Maximum number of consume queue bytes that one pass of a filter scans for messages that match. "
        "A pull makes one pass, or by SQL92 up to 8.",
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
        "Interval at which config/delayOffset.json is written.",
        _HOT_MS,
        low=100,
        high=10 * _MINUTE_MS,
    )
    timer_wheel_enable: Flag = setting(
        "timerWheelEnable", True, "Accept timer messages, which are delivered at the time that they name.", _HOT
    )
    timer_precision_ms: TimerPrecision = setting(
        "timerPrecisionMs",
        1_000,
        "Timer messages due within one such interval are delivered together at its end. Rounded down to 100, 200, 500 "
        "or 1000. A changed value applies once no message waits that was stored under the old value.",
        _MS,
        low=1,
        high=_DAY_MS,
    )
    timer_max_delay_sec: Whole = setting(
        "timerMaxDelaySec",
        259_200,
        "Maximum delay of a timer message.",
        Trait(unit="s", hot=True),
        low=1,
        high=_INT_MAX,
    )
    timer_roll_window_slot: Whole = setting(
        "timerRollWindowSlot",
        172_800,
        "Wait, in units of timerPrecisionMs, after which a timer message that is not due yet is stored again.",
        None,
        low=2,
        high=_INT_MAX,
    )
    timer_flush_interval_ms: Whole = setting(
        "timerFlushIntervalMs",
        1_000,
        "Interval at which config/timerProgress.json, the progress of timer delivery, is written.",
        _HOT_MS,
        low=100,
        high=_MINUTE_MS,
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

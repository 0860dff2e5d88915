"""Settings of the store and of replication (org.apache.rocketmq.store.config.MessageStoreConfig)."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from rocketbroker.common.config.fields import (
    DAY_MS,
    HOT,
    HOT_IMPORTANT,
    HOUR_MS,
    INT_MAX,
    MINUTE_MS,
    PORT_MAX,
    ConfigModel,
    FilePath,
    Flag,
    OptionalPath,
    Text,
    Trait,
    Whole,
    is_address,
    millis,
    percent,
    setting,
    size,
    strip,
    whole,
)

# Apache's slave has a buffer of 4 MiB.
_HA_BODY_MAX = 4 * 1024 * 1024 - 12


def _check_address(value: str) -> str:
    if value and not is_address(value):
        raise ValueError("not an address")
    return value


BrokerRole = Annotated[Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"], BeforeValidator(strip)]
Address = Annotated[Text, AfterValidator(_check_address)]


class HASettings(ConfigModel):
    """Role, HA port, intervals and acknowledgement by slaves."""

    broker_role: BrokerRole = setting(
        "ASYNC_MASTER",
        "Role in replication: a slave copies the messages of its master and takes none; SYNC_MASTER waits for "
        "inSyncReplicas before it acknowledges a message.",
        Trait(important=True, takes="ASYNC_MASTER, SYNC_MASTER or SLAVE"),
    )
    ha_listen_port: Whole = setting(
        10_912,
        "Port that slaves connect to, as registered with the name servers; by default listenPort plus 1.",
        whole(0, PORT_MAX, shown_default="listenPort + 1"),
    )
    ha_master_address: Address = setting(
        "",
        "HA address of a slave's master; empty asks the name servers for the master of its brokerName.",
        Trait(takes="host:port, or empty"),
    )
    ha_send_heartbeat_interval: Whole = setting(
        5_000, "Interval at which an idle master or slave sends a heartbeat to the other.", millis(10, HOUR_MS)
    )
    ha_housekeeping_interval: Whole = setting(
        20_000,
        "Time without a byte of the other after which a master or slave closes their connection.",
        millis(100, HOUR_MS, hot=True),
    )
    ha_transfer_batch_size: Whole = setting(
        32_768,
        "Maximum number of bytes of the log that a master sends in one transfer.",
        size(1, _HA_BODY_MAX, hot=True),
    )
    ha_max_gap_not_in_sync: Whole = setting(
        268_435_456,
        "Bytes behind its master from which on a slave counts as not in sync (mqadmin haStatus).",
        size(1, INT_MAX, hot=True),
    )
    in_sync_replicas: Whole = setting(
        1,
        "Brokers that must have a message before a SYNC_MASTER acknowledges it, itself included; as in RocketMQ, 1 "
        "waits for no slave.",
        whole(1, 64, hot=True),
    )
    enable_auto_in_sync_replicas: Flag = setting(
        False,
        "Wait for as many of inSyncReplicas as are in sync (haMaxGapNotInSync), but for minInSyncReplicas at least: a "
        "dead slave then stops no send. Needs enableSlaveActingMaster=true, as in RocketMQ.",
    )
    min_in_sync_replicas: Whole = setting(
        1,
        "Brokers that must have a message if enableAutoInSyncReplicas=true, the master included.",
        whole(1, 64, hot=True),
    )
    ha_flow_control_enable: Flag = setting(False, "Limit what a slave receives to maxHaTransferByteInSecond.", HOT)
    max_ha_transfer_byte_in_second: Whole = setting(
        104_857_600,
        "Bytes of the log that a master sends each slave in a second if haFlowControlEnable=true.",
        whole(1, 1 << 40, "bytes/s", hot=True),
    )
    slave_timeout: Whole = setting(
        3_000,
        "Longest wait of a send for slaves (SYNC_MASTER); then it is answered FLUSH_SLAVE_TIMEOUT.",
        millis(1, 10 * MINUTE_MS, hot=True),
    )

    @property
    def least_needed_slaves(self) -> int:
        """Number of slaves that must have a message of a SYNC_MASTER without any slave in sync."""
        return (self.min_in_sync_replicas if self.enable_auto_in_sync_replicas else self.in_sync_replicas) - 1

    @property
    def most_needed_slaves(self) -> int:
        """Number of slaves that must have a message of a SYNC_MASTER whose slaves are all in sync."""
        return max(self.in_sync_replicas - 1, self.least_needed_slaves)

    def needed_slaves(self, in_sync: int) -> int:
        """Return the number of slaves that must have a message of a SYNC_MASTER (CommitLog.calcNeedAckNums).

        Args:
            in_sync: slaves in sync.
        """
        return min(max(in_sync, self.least_needed_slaves), self.most_needed_slaves)


CQ_STORE_UNIT_SIZE = 20
BATCH_CQ_STORE_UNIT_SIZE = 46
_MOST_LEVELS = 255
_HOURS_MAX = 255
_HOURS_OF_DAY = 24
_TIMER_PRECISIONS_MS = (100, 200, 500, 1_000)
_LEVEL = re.compile(r"[1-9][0-9]{0,8}[smhd]\Z")
_PATH = Trait(important=True, takes="a path")


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
        lambda: str(Path.home() / "store"),
        "Directory of all data of the broker.",
        Trait(important=True, takes="a path", shown_default="$HOME/store"),
    )
    store_path_commit_log: OneDirectory = setting(
        "", "Directory of the commit log; empty means <root>/commitlog.", _PATH
    )
    store_path_consume_queue: OptionalPath = setting(
        "", "Directory of the consume queues; empty means <root>/consumequeue.", Trait(takes="a path", own=True)
    )
    store_path_index: OptionalPath = setting(
        "", "Directory of the index files; empty means <root>/index.", Trait(takes="a path", own=True)
    )
    store_checkpoint: OptionalPath = setting(
        "", "Path of the checkpoint file; empty means <root>/checkpoint.", Trait(takes="a path", own=True)
    )
    abort_file: OptionalPath = setting(
        "", "Path of the abort file; empty means <root>/abort.", Trait(takes="a path", own=True)
    )
    mapped_file_size_commit_log: Whole = setting(1_073_741_824, "Size of one commit log file.", size(4_096, INT_MAX))
    mapped_file_size_consume_queue: ConsumeQueueSize = setting(
        6_000_000,
        "Size of one consume queue file, rounded up to whole entries of 20 bytes.",
        size(CQ_STORE_UNIT_SIZE, INT_MAX // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE),
    )
    mapper_file_size_batch_consume_queue: BatchConsumeQueueSize = setting(
        13_800_000,
        "Size of one queue file of a topic with `queue.type=BatchCQ`, rounded up to whole entries of 46 bytes.",
        size(BATCH_CQ_STORE_UNIT_SIZE, INT_MAX // BATCH_CQ_STORE_UNIT_SIZE * BATCH_CQ_STORE_UNIT_SIZE),
    )
    message_index_enable: Flag = setting(
        True, "Write index files, which queries by key and unique id need.", Trait(important=True)
    )
    max_hash_slot_num: Whole = setting(5_000_000, "Hash slots of one index file.", whole(1, 100_000_000))
    max_index_num: Whole = setting(
        20_000_000, "Entries of one index file; the first is never used.", whole(2, 100_000_000)
    )
    max_keys_per_message: Whole = setting(
        128,
        "Maximum number of keys in a sent message (KEYS, separated by blanks); each takes 20 bytes of the index. "
        "A single message to a trace topic may have 2,048 if that is more.",
        whole(1, 32_767, own=True),
    )
    # The requests of one read have fewer messages, so runs of batches need no check. The ids of 400,000 fit into
    # the header of an answer.
    max_messages_per_batch: Whole = setting(
        16_384,
        "Maximum number of messages in a batch; one with more, or with four times as many index keys, is rejected "
        "with MESSAGE_ILLEGAL. Batches of a topic with queue.type=BatchCQ may have 32,767.",
        whole(12_000, 400_000, hot=True, own=True),
    )
    max_msgs_num_batch: Whole = setting(
        64, "Maximum number of messages that one QUERY_MESSAGE looks up.", whole(1, 10_000, hot=True)
    )
    max_index_entries_per_query: Whole = setting(
        5_000_000,
        "Maximum number of index entries that one QUERY_MESSAGE reads; one that needs more is rejected with "
        "SYSTEM_ERROR.",
        whole(20_000, 1_000_000_000, hot=True, own=True),
    )
    default_query_max_num: Whole = setting(
        32, "Maximum number of messages that a query by unique id returns.", whole(1, 10_000, hot=True)
    )
    flush_disk_type: FlushDiskType = setting(
        "ASYNC_FLUSH",
        "Acknowledge a send before (ASYNC_FLUSH) or after (SYNC_FLUSH) it is on disk.",
        Trait(important=True, takes="ASYNC_FLUSH or SYNC_FLUSH"),
    )
    sync_flush_timeout: Whole = setting(
        5_000,
        "Longest wait of a send for the disk (SYNC_FLUSH); then it is answered FLUSH_DISK_TIMEOUT.",
        millis(1, 10 * MINUTE_MS, hot=True),
    )
    flush_interval_commit_log: Whole = setting(
        500, "Interval at which the commit log is flushed.", millis(1, MINUTE_MS, important=True)
    )
    flush_commit_log_least_pages: Whole = setting(
        4,
        "Minimum of written pages of 4,096 bytes for the commit log to be flushed at its interval.",
        whole(0, 16_384, hot=True),
    )
    flush_commit_log_thorough_interval: Whole = setting(
        10_000,
        "Interval at which the commit log is flushed regardless of flushCommitLogLeastPages.",
        millis(1, 10 * MINUTE_MS, hot=True),
    )
    flush_interval_consume_queue: Whole = setting(
        1_000, "Interval at which the consume queues are flushed.", millis(1, MINUTE_MS)
    )
    os_page_cache_busy_time_out_mills: Whole = setting(
        1_000,
        "Longest wait of a send for blocks of the commit log; then sends are rejected with SYSTEM_BUSY until it gets "
        "them.",
        millis(1, 10_000),
    )
    file_reserved_time: Whole = setting(
        72,
        "Time for which a commit log file is kept after its last change.",
        whole(1, 876_000, "h", hot=True, important=True),
    )
    delete_when: Hours = setting(
        "04",
        "Hours of the day (local time) in which expired commit log files are removed.",
        Trait(hot=True, important=True, takes="hours from 0 to 23 joined by ';'"),
    )
    clean_resource_interval: Whole = setting(
        10_000,
        "Interval at which disk space is checked and expired files are removed.",
        millis(10, 10 * MINUTE_MS, hot=True),
    )
    delete_file_batch_max: Whole = setting(
        10,
        "Maximum number of commit log files removed in one pass; the next pass follows after cleanResourceInterval.",
        whole(1, 10_000, hot=True, important=True),
    )
    delete_commit_log_files_interval: Whole = setting(
        100, "Pause between the removals of two commit log files.", millis(0, MINUTE_MS, hot=True)
    )
    delete_consume_queue_files_interval: Whole = setting(
        100, "Pause between the removals of two consume queue or index files.", millis(0, MINUTE_MS, hot=True)
    )
    redelete_hanged_file_interval: Whole = setting(
        120_000, "Time after which a failed removal of a file is retried.", millis(1, HOUR_MS, hot=True)
    )
    destroy_maped_file_interval_forcibly: Whole = setting(
        120_000,
        "Time for which forced removal counts the space of a removed file as free while its messages are still being "
        "sent.",
        millis(0, HOUR_MS, hot=True),
    )
    disk_max_used_space_ratio: Whole = setting(
        75, "Disk usage above which expired commit log files are removed at any hour.", percent(10, 100, hot=True)
    )
    disk_space_clean_forcibly_ratio: Whole = setting(
        85,
        "Disk usage above which the oldest commit log files are removed, expired or not (cleanFileForciblyEnable).",
        percent(30, 100, hot=True),
    )
    disk_space_warning_level_ratio: Whole = setting(
        90,
        "Disk usage above which sends are rejected until space is free; 100 never rejects for this reason.",
        percent(35, 100, hot=True),
    )
    clean_file_forcibly_enable: Flag = setting(
        True,
        "Remove unexpired messages, consumed or not, while diskSpaceCleanForciblyRatio is exceeded.",
        HOT_IMPORTANT,
    )
    max_message_size: Whole = setting(
        4_194_304,
        "Maximum size of a sent body. Stored messages that are longer are delivered and retried all the same.",
        size(1, 1 << 28, hot=True),
    )
    max_transfer_bytes_on_message_in_memory: Whole = setting(
        262_144,
        "Maximum number of bytes that one pull returns from the part of the log in memory.",
        size(1, 1 << 28, hot=True, important=True),
    )
    max_transfer_count_on_message_in_memory: Whole = setting(
        32,
        "Maximum number of messages that one pull returns from the part of the log in memory.",
        whole(1, 100_000, hot=True, important=True),
    )
    max_transfer_bytes_on_message_in_disk: Whole = setting(
        65_536,
        "Maximum number of bytes that one pull returns from the part of the log on disk only.",
        size(1, 1 << 28, hot=True, important=True),
    )
    max_transfer_count_on_message_in_disk: Whole = setting(
        8,
        "Maximum number of messages that one pull returns from the part of the log on disk only.",
        whole(1, 100_000, hot=True, important=True),
    )
    access_message_in_memory_max_ratio: Whole = setting(
        40,
        "Share of the machine's memory. Messages further back in the log than this are checked before delivery, and "
        "count as on disk unless they are in the page cache.",
        percent(1, 100, important=True),
    )
    max_filter_message_size: Whole = setting(
        16_000,
        "Maximum number of consume queue bytes that one pass of a filter scans for messages that match. "
        "A pull makes one pass, or by SQL92 up to 8.",
        size(CQ_STORE_UNIT_SIZE, 1 << 28, hot=True),
    )
    max_consume_queue_scan: Whole = setting(
        20_000,
        "Maximum number of consume queue entries that an estimate of a lag looks at in one queue.",
        whole(1, 1_000_000, hot=True),
    )
    sample_count_threshold: Whole = setting(
        5_000,
        "An estimate of a lag stops looking in a queue once more than this number of messages match.",
        whole(0, 1_000_000, hot=True),
    )
    message_delay_level: DelayLevels = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the levels 1, 2, ...",
        Trait(takes="up to 255 numbers with s, m, h or d, joined by single blanks"),
    )
    flush_delay_offset_interval: Whole = setting(
        10_000, "Interval at which config/delayOffset.json is written.", millis(100, 10 * MINUTE_MS, hot=True)
    )
    timer_wheel_enable: Flag = setting(
        True, "Accept timer messages, which are delivered at the time that they name.", HOT
    )
    timer_stop_enqueue: Flag = setting(
        False, "Read no new timer messages; they are stored, and wait until this is false again.", HOT
    )
    timer_stop_dequeue: Flag = setting(
        False, "Deliver no timer messages; those that are due wait until this is false again.", HOT
    )
    timer_precision_ms: TimerPrecision = setting(
        1_000,
        "Timer messages due within one such interval are delivered together at its end. Rounded down to 100, 200, 500 "
        "or 1000. A changed value applies once no message waits that was stored under the old value.",
        millis(1, DAY_MS),
    )
    timer_max_delay_sec: Whole = setting(259_200, "Maximum delay of a timer message.", whole(1, INT_MAX, "s", hot=True))
    timer_roll_window_slot: Whole = setting(
        172_800,
        "Wait, in units of timerPrecisionMs, after which a timer message that is not due yet is stored again.",
        whole(2, INT_MAX),
    )
    timer_flush_interval_ms: Whole = setting(
        1_000,
        "Interval at which config/timerProgress.json, the progress of timer delivery, is written.",
        millis(100, MINUTE_MS, hot=True),
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

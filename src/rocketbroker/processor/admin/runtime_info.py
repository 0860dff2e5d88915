"""GET_BROKER_RUNTIME_INFO (28): figures of the broker (AdminBrokerProcessor.prepareRuntimeInfo).

The answer has every key of RocketMQ, since exporters and dashboards read them as numbers. Values are measured, except
those in ``NOT_MEASURED``.

These keys are not RocketMQ's, and absent while they would be 0 or empty:

- ``replicationProblem``: reason why a slave does not follow its master;
- ``notReady``: reasons why the broker is not ready, as ``mqbroker --check`` and /readyz tell them;
- ``damagedMessages``: number of messages found damaged since the start;
- ``subscriptionConflicts``, ``subscriptionConflictGroups``: number of times since the start that clients of one group
  began to disagree about its subscriptions, and number of groups whose clients disagree now;
- ``plainTextConnections``, ``lastPlainTextPeer``: connections in plain text from other machines since the start, and
  the address of the last one, at a port that serves TLS, too;
- ``openFiles``, ``openFilesLimit``, ``mappedFiles``, ``mappedFilesLimit``: descriptors and mappings of the process, and
  the limits of the system; absent where the system does not tell.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.platform import mapped_count, max_map_count, open_file_count, open_file_limits
from rocketbroker.processor.support.request_family import answers
from rocketbroker.store.clean.disk_watch import DiskUse, MeasureDisk, disk_of, measure_disk
from rocketbroker.store.message_store import MessageStore

# The name of RemotingCommand's CURRENT_VERSION (513) in MQVersion: the broker's protocol version.
BROKER_VERSION_DESC = "V5_5_0"
_UNITS = "KMGTPE"
_NO_THREADS = ("pullThreadPool", "litePullThreadPool", "queryThreadPool", "ackThreadPool")
_DURATIONS = ("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s")
_LONG_DURATIONS = ("4~5s", "5~10s", "10s~")
#: Keys of RocketMQ for parts that this broker does not have or does not time.
NOT_MEASURED: Final = {
    # Requests are handled as they are read: no thread pool has a queue in which they could wait.
    **{f"{pool}Queue{value}": "0" for pool in _NO_THREADS for value in ("Size", "Capacity", "HeadWaitTimeMills")},
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "0",
    # There is no lock around puts, and no buffer between the log and its queues.
    "pageCacheLockTimeMills": "0",
    "dispatchMaxBuffer": "0",
    # RocketMQ's value without a pool of buffers, for which it leaves out remainHowManyDataToCommit.
    "remainTransientStoreBufferNumbs": "2147483647",
    # Single puts and gets are not timed.
    "putMessageDistributeTime": "".join(f"[{duration}]:0 " for duration in _DURATIONS + _LONG_DURATIONS),
    "putMessageEntireTimeMax": "0",
    "getMessageEntireTimeMax": "0",
    "putLatency99": "0.00",
    "putLatency999": "0.00",
}
_NO_MESSAGE = "-1"


@dataclass(frozen=True, slots=True)
class RuntimeInfoRequests:
    """The figures of the broker.

    Attributes:
        config: the time from which sends are accepted.
        store: the store with all its parts.
        stats: counters of puts and gets.
        schedule: progress of the delay levels.
        consumers: subscription conflicts.
        is_active: returns true if this broker delivers delayed messages (``brokerActive``).
        clock: clock for the uptime.
        executor: threads that query the disks, which may block.
        timer_info: returns the keys of timer messages.
        send_info: returns the keys of the queue of sends that are not acknowledged.
        replication_problem: returns the reason why a slave does not follow its master, empty if it does.
        not_ready: returns the reasons why the broker is not ready, empty if it is.
        measure_disk: measures the disk of a folder.
        tls_info: returns the keys of TLS.
    """

    config: BrokerConfig
    store: MessageStore
    stats: BrokerStatsManager
    schedule: ScheduleMessageService
    consumers: ConsumerManager
    is_active: Callable[[], bool]
    clock: Clock
    executor: Executor
    timer_info: Callable[[], dict[str, str]]
    send_info: Callable[[], dict[str, str]]
    replication_problem: Callable[[], str]
    not_ready: Callable[[], str]
    measure_disk: MeasureDisk
    tls_info: Callable[[], dict[str, str]]

    @answers(RequestCode.GET_BROKER_RUNTIME_INFO, audience=Audience.BROKER)
    async def get_broker_runtime_info(self, _connection: Connection, _command: Command) -> Command:
        """Answer a table of keys and values."""
        loop = asyncio.get_running_loop()
        config, measure = self.store.config, self.measure_disk
        disks = await loop.run_in_executor(self.executor, lambda: disk_info(config, measure) | limit_info())
        table = self._store_info() | self.stats.runtime_info() | self.schedule.runtime_info() | disks
        table |= self.consumers.runtime_info()
        table |= NOT_MEASURED | self.timer_info() | self.send_info() | self.tls_info()
        if problem := self.replication_problem():
            table["replicationProblem"] = problem
        table["startAcceptSendRequestTimeStamp"] = str(self.config.start_accept_send_request_time_stamp)
        if reasons := self.not_ready():
            table["notReady"] = reasons
        table["brokerActive"] = str(self.is_active()).lower()
        table["brokerVersionDesc"] = BROKER_VERSION_DESC
        return response(body=KVTable(table).encode())

    def _store_info(self) -> dict[str, str]:
        store = self.store
        end = store.commit_log.max_offset
        info = {
            "bootTimestamp": str(store.boot_time_ms),
            "runtime": format_runtime(self.clock.time_ms() - store.boot_time_ms),
            "commitLogMinOffset": str(store.commit_log.min_offset),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(end - store.appender.dispatched_offset),
            "remainHowManyDataToFlush": human_readable_byte_count(max(0, end - store.flusher.flushed_offset)),
        }
        if store.damage_log.count:
            info["damagedMessages"] = str(store.damage_log.count)
        first = store.commit_log.record(store.commit_log.min_offset)
        earliest = _NO_MESSAGE if first is None else str(decode_record(first, read_body=False).store_timestamp)
        info["earliestMessageTimeStamp"] = earliest
        return info


def disk_info(config: MessageStoreConfig, measure: MeasureDisk = measure_disk) -> dict[str, str]:
    """Return the use of the store's disks, without those that cannot be read (blocks)."""
    info: dict[str, str] = {}
    log_use, queue_use = _use_or_none(measure, config.commit_log_dir), _use_or_none(measure, config.consume_queue_dir)
    if log_use is not None:
        ratio = str(log_use.ratio)
        info["commitLogDiskRatio"] = info[f"commitLogDiskRatio_{config.commit_log_dir}"] = ratio
    if queue_use is not None:
        info["consumeQueueDiskRatio"] = str(queue_use.ratio)
    with suppress(OSError):
        root_disk = disk_of(Path(config.store_path_root_dir))
        sizes = (blocks * root_disk.f_frsize for blocks in (root_disk.f_blocks, root_disk.f_bfree))
        total, free = map(human_readable_byte_count, sizes)
        info["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."
    return info


def limit_info() -> dict[str, str]:
    """Return the descriptors and mappings of this process and their limits (reads /proc)."""
    open_files, most_mapped = open_file_count(), max_map_count()
    info: dict[str, str] = {}
    if open_files is not None:
        info |= {"openFiles": str(open_files), "openFilesLimit": str(open_file_limits()[0])}
    if most_mapped is not None:
        info |= {"mappedFiles": str(mapped_count()), "mappedFilesLimit": str(most_mapped)}
    return info


def _use_or_none(measure: MeasureDisk, path: Path) -> DiskUse | None:
    try:
        return measure(path)
    except OSError:
        return None


def human_readable_byte_count(count: int) -> str:
    """Format bytes as ``12 B``, ``1.5 KiB`` (MixAll.humanReadableByteCount)."""
    value, unit = float(count), ""
    for candidate in _UNITS:
        if value < 1024:
            break
        value, unit = value / 1024, candidate
    return f"{value:.1f} {unit}iB" if unit else f"{count} B"


def format_runtime(elapsed_ms: int) -> str:
    """Format a duration as ``[ 0 days, 0 hours, 10 minutes, 36 seconds ]`` (StoreStatsService.getFormatRuntime)."""
    minutes, seconds = divmod(elapsed_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"

"""Slave's side of replication: follows the log of its master (DefaultHAClient)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from rocketbroker.codec.ha_frames import LogPart
from rocketbroker.codec.remoting.bodies.offset import HAClientRuntimeInfo, HARuntimeInfo
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError, RemotingError, StoreBusyError, StoreError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.ha.history_check import (
    CommonPrefix,
    DifferentHistoryError,
    NothingSentError,
    TailCheck,
    begin_of_last_file,
)
from rocketbroker.ha.master_link import UNPROTECTED, LinkSecurity, MasterLink
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import lengths_agree
from rocketbroker.store.commitlog.put_message import Acknowledgement
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.replica_log import ReplicaLog

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
# Pause of a slave that has messages which its master does not have.
_STOPPED_S: Final = 30.0
_BUSY_S: Final = 0.05
_ADDRESS_S: Final = 0.5
# Intervals of ``haSendHeartbeatInterval`` without bytes after which a master counts as silent.
_HEARTBEATS: Final = 2


class _Prefix(NamedTuple):
    """End of what two logs have in common, by the master, the end of the own log, and the difference found first."""

    address: str
    own_end: int
    differs_at: int
    end: int


# The log of a slave must be its master's, byte for byte. A connection proves that to neither side: the handshake of
# access control says who is there, not what they have. So on each connection, in this order:
#
# 1. What was appended is synced first, under SYNC_FLUSH and after a failed sync: a report says that it is kept.
# 2. The first report names an offset before the own end, and the bytes that come are compared with the own ones
#    (``TailCheck``). A master that lost messages, or was another one's slave meanwhile, sends others. Then the slave
#    stops and says where the logs differ. It cuts nothing by itself: its messages may be the only copies of some that
#    were acknowledged.
# 3. Only after that a report counts: the master ignores the first one of each connection.
# 4. Bytes are appended as whole records, each checked against its offset, lengths and checksum. What came of the next
#    record waits in memory (``_pending``) and goes with the connection; the next one begins at the end of the log.
#
# A kill of either side at any point leaves a slave's log that is a prefix of the master's, or recovery makes it one: it
# cuts a torn record at the end. A master under SYNC_FLUSH sends only what is on its disk, so that a power loss does not
# leave it behind its slaves.
class HAClient:
    """Copies the master's log, from where the own log ends.

    Args:
        master: returns the HA address that the name servers have for the master, empty if they have none.
        replica: takes the bytes.
        commit_log: the log that they become.
        flusher: syncs the log; under SYNC_FLUSH only what is on disk is reported.
        security: TLS of connections, and the handshake of access control.

    Attributes:
        address: HA address of the master that is followed, empty without one.
        problem: reason why the log is not followed, empty while it is.
        on_change: called when ``problem`` has changed.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        master: Callable[[], str],
        replica: ReplicaLog,
        commit_log: CommitLog,
        flusher: CommitLogFlusher,
        clock: Clock,
        security: LinkSecurity = UNPROTECTED,
    ) -> None:
        self._security = security
        self._config = config
        self._master = master
        self._replica = replica
        self._commit_log = commit_log
        self._flusher = flusher
        self._clock = clock
        self._sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        self._tasks = TaskOwner("HAClient")
        self._link: MasterLink | None = None
        self._pending = b""
        self._check: TailCheck | None = None
        # Greatest offset reported over the open connection.
        self._reported = 0
        self._prefix = _Prefix("", 0, 0, 0)
        self.address = ""
        self.problem = "it has not connected to its master yet"
        self.on_change: Callable[[], object] = tuple
        self._wake = asyncio.Event()
        # Set once the log was compared over the open connection.
        self._compared = asyncio.Event()
        self._last_read_at = 0.0
        # Address of the master that this log was compared with last and found equal.
        self._same_log = ""
        self._last_read_ms = self._last_write_ms = self._received_bytes = self._bytes_per_s = 0

    async def start(self) -> None:
        """Follow the master from now on."""
        self._tasks.forever(self._run, "follow")
        self._tasks.every(self._config.ha_send_heartbeat_interval / 1000, self._report_again, "report")

    async def stop(self) -> None:
        """Close the connection."""
        await self._tasks.stop()
        self._close()

    async def _run(self) -> None:
        while True:
            self.address = self._config.ha_master_address or self._master()
            if not self.address:
                self._note("no name server knows its master; start the master, or set haMasterAddress")
                await self._pause(_ADDRESS_S)
                continue
            pause_s = _RETRY_S
            try:
                await self._follow()
            except DifferentHistoryError as error:
                self._same_log = ""
                pause_s = _STOPPED_S
                self._note(await self._stop_text(error))
            except (RemotingError, CodecError, StoreError, OSError) as error:
                self._note(str(error))
            finally:
                self._close()
            await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        """Sleep until the next try, or until ``compare_again``."""
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _follow(self) -> None:
        """Follow the master until the connection ends.

        Raises:
            RemotingError: The connection failed.
            CodecError: The master's bytes are wrong.
            StoreError: The log cannot take them.
            OSError: The disk failed.
            DifferentHistoryError: This log has messages that the master does not have.
        """
        # What was appended may not be on disk yet, and the first report says that it is.
        must_sync = self._sync_flush or self._flusher.error
        if must_sync and not (flushed := await self._flusher.sync()).ok:
            raise StoreError(flushed.reason)
        is_empty = self._commit_log.min_offset == self._replica.max_offset
        loop = asyncio.get_running_loop()
        self._check = None if is_empty else await loop.run_in_executor(None, TailCheck, self._commit_log)
        link = await MasterLink.connect(self.address, self._silence_s, self._security)
        log.info("HAClient: connected to the master at %s; this log ends at %d", self.address, self._replica.max_offset)
        self._pending, self._link, self._reported = b"", link, 0
        self._same_log = self.address if is_empty else ""
        self._last_read_at = loop.time()
        compared = self._compared
        if is_empty:
            compared.set()
        self._report(0 if self._check is None else self._check.begin)
        while True:
            parts = await link.read(self._replica.step)
            self._last_read_ms, self._last_read_at = self._clock.time_ms(), loop.time()
            if (check := self._check) is not None:
                parts = await loop.run_in_executor(None, list, map(check.take, parts))
                if not check.is_done:
                    continue
                self._check = None
                self._same_log = self.address
                compared.set()
                self._note("")
                # The master counts the messages before the end from this report on.
                self._report(self._kept_end)
            if any(not part.data and part.offset == self._replica.max_offset for part in parts):
                self._note("")  # a heartbeat at the own end: this slave has all, if it is nothing
            await self._take([part for part in parts if part.data])
            # What has arrived meanwhile is taken together.
            await self._replica.let_dispatch()

    async def _take(self, parts: list[LogPart]) -> None:
        """Append the whole records among the bytes received, and report them."""
        if not parts:
            return
        begin = self._replica.max_offset
        if not self._pending and parts[0].offset != begin:
            if self._commit_log.min_offset != begin:
                raise CodecError(f"the master sends {parts[0].offset}, but this log ends at {begin}")
            await self._replica.begin_at(parts[0].offset)
            begin = parts[0].offset
        self._note("")
        data = b"".join([self._pending, *(part.data for part in parts)])
        self._received_bytes += sum(len(part.data) for part in parts)
        end = await self._append(begin, data)
        self._pending = data[end - begin :]
        # The whole record is awaited in memory. It may be longer than maxMessageSize allows by now, here and at the
        # master. But a damaged length must not collect bytes up to the end of the file.
        if len(self._pending) > (longest := self._commit_log.longest_record) and not lengths_agree(self._pending):
            raise CodecError(
                f"the master sends a record at {end} that is longer than {longest:,} bytes, and its lengths do not "
                "agree; check the master's store with mqstore check"
            )
        if self._sync_flush:
            self._flusher.when_flushed(end, self._report_flushed)
        elif not self._flusher.error:
            self._report(end)

    async def _append(self, begin: int, data: bytes) -> int:
        while True:
            try:
                return self._replica.append(begin, data)
            except StoreBusyError:
                done = self._replica.max_offset
                begin, data = done, data[done - begin :]
                await asyncio.sleep(_BUSY_S)

    def _report_flushed(self, outcome: Acknowledgement) -> None:
        # The log was compared over this connection: ``_take`` asks for the sync, and ``_follow`` waits for the last one
        # before it connects again.
        if outcome.ok:
            self._report(self._kept_end)

    # A report is a promise: the master acknowledges to its producers what enough slaves have reported. ASYNC_FLUSH
    # promises that a sound disk will take what is in memory. A disk that failed a sync is not sound: it may fail for
    # ever, and then a restart of this slave loses all since the last good sync, although each producer got SEND_OK. So
    # from a failed sync until its repetition has succeeded, reports name nothing that is not on disk. They still come,
    # since a silent slave is disconnected, and the master answers FLUSH_SLAVE_TIMEOUT for what they leave out.
    # ``_report_again`` brings the rest once the sync has succeeded, even if no message follows. Other failures need no
    # such rule: without room for a record, ``append`` fails before a report; queues and index are rebuilt from the log.
    @property
    def _kept_end(self) -> int:
        """CommitLog offset up to which the master may count on this slave, 0 for a log without records."""
        end = self._replica.max_offset
        if end == self._commit_log.min_offset:
            return 0
        return min(self._flusher.flushed_offset, end) if self._sync_flush or self._flusher.error else end

    def _report(self, offset: int) -> None:
        """Report an offset, or the last one again if that is greater: reports of a connection never go back."""
        if self._link is not None:
            self._reported = max(offset, self._reported)
            self._link.report(self._reported)
            self._last_write_ms = self._clock.time_ms()

    def _report_again(self) -> None:
        self._bytes_per_s = int(self._received_bytes * 1000 / self._config.ha_send_heartbeat_interval)
        self._received_bytes = 0
        # A second report says that the slave has what precedes it: none before the end of the log was compared.
        if self._check is None:
            self._report(self._kept_end)

    @property
    def other_log(self) -> str:
        """Reason why the master's log may not continue this one, empty if it does."""
        master = self._config.ha_master_address or self._master()
        if (master and self._same_log == master) or self._commit_log.min_offset == self._replica.max_offset:
            return ""
        return self.problem or "this log was not compared with that of its master yet"

    def runtime_info(self) -> HARuntimeInfo:
        """Return the state of the copying for GET_BROKER_HA_STATUS; RocketMQ has no field for a problem.

        ``master_flush_offset`` is 0, as in RocketMQ without syncMasterFlushOffsetWhenStartup: frames do not name it.
        """
        problem = self.problem or self._flusher.error
        address = f"{self.address} ({problem})" if problem else self.address
        end, read_ms, written_ms = self._replica.max_offset, self._last_read_ms, self._last_write_ms
        copying = HAClientRuntimeInfo(address, self._bytes_per_s, end, read_ms, written_ms)
        return HARuntimeInfo(False, ha_client_runtime_info=copying)

    @property
    def is_fed(self) -> bool:
        """True while the master sends its log or heartbeats."""
        silence_s = asyncio.get_running_loop().time() - self._last_read_at
        return self._link is not None and silence_s < _HEARTBEATS * self._config.ha_send_heartbeat_interval / 1000

    def compare_again(self) -> None:
        """Compare the log with that of a master that has just started; an open connection may be one to its past."""
        if self._link is not None:
            self._compared = asyncio.Event()
            self._link.drop("its master has started again, and the logs are compared again")
        self._wake.set()

    async def is_compared(self, timeout_s: float) -> bool:
        """Return true once the master of the open connection has all of this log, false if it takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._compared.wait()
        except TimeoutError:
            return False
        return True

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._compared.is_set():
            self._compared = asyncio.Event()

    @property
    def _silence_s(self) -> float:
        return self._config.ha_housekeeping_interval / 1000

    async def _stop_text(self, error: DifferentHistoryError) -> str:
        """Return the text for a log with messages that the master does not have."""
        try:
            nothing_sent, address, silence_s = isinstance(error, NothingSentError), self.address, self._silence_s
            if nothing_sent and error.offset < await begin_of_last_file(address, silence_s, self._security):
                # The master has later files, and so has removed the one that was asked for.
                return (
                    f"the master at {self.address} has removed the file with {error.offset}, where this log continues; "
                    "start this slave with an empty store"
                )
            offset = await self._common_end(error.offset)
        except (RemotingError, CodecError, OSError) as failed:
            return f"{error}; the first difference was not found: {failed}"
        lost = self._replica.max_offset - offset
        root = self._config.store_path_root_dir
        if offset <= self._commit_log.min_offset:
            return (
                f"{error}. The master at {self.address} has none of the messages of this slave. Replication has "
                f"stopped; if the master lost its store, stop both and copy {root} to it; if these messages may go, "
                f"stop this slave and run mqstore truncate {root} {offset}"
            )
        return (
            f"{error}. The first message that the master at {self.address} does not have is at {offset} of the "
            f"CommitLog. Replication has stopped; to drop the {lost:,} bytes from there on, stop this slave and run "
            f"mqstore truncate {root} {offset}"
        )

    async def _common_end(self, differs_at: int) -> int:
        """Return the offset of the first own record that the master does not have; search once for each difference."""
        key = (self.address, self._replica.max_offset, differs_at)
        if self._prefix[:3] != key:
            prefix = CommonPrefix(self.address, self._commit_log, self._silence_s, self._security)
            self._prefix = _Prefix(*key, await prefix.find_end(differs_at))
        return self._prefix.end

    def _note(self, problem: str) -> None:
        """Record the state, and log it when it changes, not at each attempt."""
        is_changed, self.problem = problem != self.problem, problem
        if is_changed:
            if problem:
                log.error("HAClient: the master's log is not followed: %s", problem)
            else:
                log.info("HAClient: following the master at %s from %d on", self.address, self._replica.max_offset)
            self.on_change()

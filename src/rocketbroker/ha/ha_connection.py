"""Master's side of the connection to one slave (DefaultHAConnection)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from rocketbroker.codec.ha_frames import MAX_BODY, TRANSFER_HEADER, ReportReader
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.ha.ha_handshake import HANDSHAKE_S, HAAccess, HandshakeError, MasterHandshake
from rocketbroker.store.commitlog.commit_log import CommitLog

log = logging.getLogger(__name__)

# Bytes before the end of the transfers that are in the page cache for certain: they were just written.
_HOT: Final = 32 << 20


class TransferSource:
    """The part of the log that slaves may have.

    Args:
        flushed_offset: returns the CommitLog offset up to which the log is on disk; ``None`` to transfer what is not.
    """

    def __init__(self, commit_log: CommitLog, flushed_offset: Callable[[], int] | None) -> None:
        self._commit_log = commit_log
        self._flushed_offset = flushed_offset

    @property
    def begin(self) -> int:
        """CommitLog offset of the first bytes."""
        return self._commit_log.min_offset

    @property
    def end(self) -> int:
        """CommitLog offset after the last bytes.

        Under SYNC_FLUSH slaves get what is on disk: a slave must not have what its master loses in a power loss.
        """
        end = self._commit_log.max_offset
        return end if self._flushed_offset is None else min(self._flushed_offset(), end)

    @property
    def log_end(self) -> int:
        """CommitLog offset after the last record, on disk or not."""
        return self._commit_log.max_offset

    @property
    def begin_of_last_file(self) -> int:
        """CommitLog offset at which a slave without messages begins."""
        end = self._commit_log.max_offset
        return max(end - end % self._commit_log.queue.file_size, self.begin)

    def is_hot(self, offset: int) -> bool:
        """Return true if a slice from an offset on is read without waiting for the disk."""
        return offset >= self.end - _HOT

    def piece(self, offset: int, most: int) -> memoryview | None:
        """Return up to ``most`` bytes from an offset on, all of one file, as a slice of its mapping."""
        return self._commit_log.slice(offset, size) if (size := self._size(offset, most)) else None

    def read(self, offset: int, most: int) -> bytes | None:
        """Read up to ``most`` bytes from an offset on, all of one file (blocks)."""
        return self._commit_log.bytes_at(offset, size) if (size := self._size(offset, most)) else None

    def _size(self, offset: int, most: int) -> int:
        file_size = self._commit_log.queue.file_size
        return max(min(most, self.end - offset, file_size - offset % file_size), 0)


# Bytes that wait for a slave, above which nothing more is sent to it.
_MOST_UNSENT: Final = 1 << 20
# Bytes read at a time from the part of the log that may not be in memory.
_READ_SIZE: Final = 1 << 20
_MOMENT_S: Final = 0.001
# Reports have eight bytes.
_ROOM: Final = 4096
# Seconds for which haFlowControlEnable counts what was sent.
FLOW_WINDOW_S: Final = 1.0


class HAConnectionOwner(Protocol):
    """Part of ``HAService`` that a connection uses."""

    def admits(self, connection: "HAConnection") -> bool:
        """Return true to accept a new connection; log the reason to reject it."""

    def reported(self) -> None:
        """Note that a slave has more of the log."""

    def gone(self, connection: "HAConnection") -> None:
        """Remove a closed connection."""


class HAConnection(asyncio.BufferedProtocol):
    """Sends the log to a slave from the offset that its first report names.

    Args:
        access: what the slave must prove before.

    Attributes:
        peer: address of the slave as ``host:port``.
        peer_host: host of the slave.
        own_host: host to which the slave connected.
        begun_at: time of the connection, in loop time.
        ack_offset: CommitLog offset up to which the slave has the log, -1 before its second report.
        next_offset: CommitLog offset of the next transfer, -1 before the first report.
        bytes_per_s: bytes of the log sent in a second, as measured by the last two checks.
    """

    def __init__(
        self,
        owner: HAConnectionOwner,
        source: TransferSource,
        config: MessageStoreConfig,
        tasks: TaskOwner,
        access: HAAccess,
    ) -> None:
        self._owner = owner
        self._source = source
        self._config = config
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._access = access
        self._handshake = MasterHandshake(access)
        self._reports = ReportReader()
        self._room = memoryview(bytearray(_ROOM))
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._catch_up: asyncio.Task[None] | None = None
        self._last_heard = self._last_written = self.begun_at = self._loop.time()
        self.peer = self.peer_host = self.own_host = "?"
        self.ack_offset = self.next_offset = -1
        self.bytes_per_s = 0
        self._sent_bytes = 0
        # What was sent in the window of the flow control, and the call at its end if more waits for it.
        self._window_begun, self._window_bytes = self.begun_at, 0
        self._window_over: asyncio.TimerHandle | None = None
        self._last_check = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=_MOST_UNSENT)
        if peer := transport.get_extra_info("peername"):
            self.peer_host = peer[0]
            self.peer = join_address(*peer[:2])
        if own := transport.get_extra_info("sockname"):
            self.own_host = own[0]
        if not self._owner.admits(self):
            transport.abort()
            self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        if self._transport is not None:
            log.info("HAService: the slave at %s has closed its connection%s", self.peer, f": {exc}" if exc else "")
        self._forget()

    def secured(self, transport: asyncio.Transport) -> None:
        """Write to an encrypted transport from now on."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio."""
        data = bytes(self._room[:nbytes])
        if self._transport is None:
            return
        self._last_heard = self._loop.time()
        try:
            if not self._handshake.is_over:
                data = self._shake_hands(data)
            offset = self._reports.feed(data)
        except HandshakeError as error:
            self._refuse(error)
            return
        except CodecError as error:
            self.close(str(error))
            return
        if offset is not None:
            self._reported(offset)

    def _shake_hands(self, data: bytes) -> bytes:
        """Answer the handshake; return the bytes after it.

        Raises:
            CodecError: The slave does not prove itself.
        """
        answer, rest = self._handshake.feed(data)
        if answer and self._transport is not None:
            self._transport.write(answer)
        if self._handshake.is_over and self._handshake.has_begun:
            log.info("HAService: the slave at %s is %s", self.peer, self._handshake.peer)
        return rest

    def _refuse(self, error: HandshakeError) -> None:
        self._access.refused(self.peer, error)
        self.close(str(error))

    def _reported(self, offset: int) -> None:
        source = self._source
        known = source.log_end if self.next_offset < 0 else self.next_offset
        if offset > known:
            is_first = self.next_offset < 0
            if is_first:
                # A heartbeat at the true end tells the slave that it is ahead.
                self._write_header(source.log_end, 0)
            self.close(
                f"it reports {offset}, but got this log only up to {known}; it has other messages than its master",
                after_writes=is_first,
            )
            return
        if self.next_offset < 0:
            begin = offset or source.begin_of_last_file
            if begin < source.begin:
                self.close(
                    f"it continues at {begin}, but the log begins at {source.begin}, as older files were removed; "
                    "start it with an empty store"
                )
                return
            self.next_offset = begin
            log.info("HAService: the slave at %s follows from %d on", self.peer, begin)
        else:
            # The first report only names where to begin: the slave may still find that its log differs. Its next one
            # counts, even at the same offset: Apache's slave repeats its end while it is idle.
            self.ack_offset = offset
            self._owner.reported()
        self.transfer()

    @property
    def is_slave(self) -> bool:
        """True once the peer has reported where to begin: a connection alone proves nothing."""
        return self.next_offset >= 0

    @property
    def is_behind(self) -> bool:
        """True while a slave that continues the log has not reported its end."""
        return 0 <= self.ack_offset < self._source.end

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._can_write.set()
        self.transfer()

    def transfer(self) -> None:
        """Send what the slave lacks, as far as it takes it."""
        if self.next_offset < 0 or self._catch_up is not None:
            return
        source, most = self._source, min(self._config.ha_transfer_batch_size, MAX_BODY)
        while self._can_write.is_set() and self._transport is not None:
            if not source.is_hot(self.next_offset):
                self._catch_up = self._tasks.start(self._read_and_send(), f"catch up {self.peer}")
                return
            allowed = self._allowance(most)
            if not allowed:
                self._transfer_later()
                return
            piece = source.piece(self.next_offset, allowed)
            if piece is None:
                return
            self._send(piece)

    def _allowance(self, most: int) -> int:
        """Return how many bytes may be sent now, up to ``most`` (FlowMonitor.canTransferMaxByteNum)."""
        config = self._config
        if not config.ha_flow_control_enable:
            return most
        now = self._loop.time()
        if now >= self._window_begun + FLOW_WINDOW_S:
            self._window_begun, self._window_bytes = now, 0
        return max(min(most, config.max_ha_transfer_byte_in_second - self._window_bytes), 0)

    def _transfer_later(self) -> None:
        """Go on in the next window of the flow control."""
        if self._window_over is None:
            self._window_over = self._loop.call_at(self._window_begun + FLOW_WINDOW_S, self._next_window)

    def _next_window(self) -> None:
        self._window_over = None
        self.transfer()

    async def _read_and_send(self) -> None:
        """Send the part of the log that may not be in memory, read on a thread."""
        try:
            most = min(self._config.ha_transfer_batch_size, MAX_BODY)
            while self._transport is not None and not self._source.is_hot(self.next_offset):
                data = await self._loop.run_in_executor(None, self._source.read, self.next_offset, _READ_SIZE)
                if not data:
                    is_removed = self.next_offset < self._source.begin
                    advice = "; start the slave with an empty store" if is_removed else ""
                    self.close(f"the log has no file with {self.next_offset}{advice}")
                    return
                begin = 0
                while begin < len(data):
                    await self._can_write.wait()
                    allowed = self._allowance(most)
                    if not allowed:
                        await asyncio.sleep(self._window_begun + FLOW_WINDOW_S - self._loop.time())
                        continue
                    self._send(memoryview(data)[begin : begin + allowed])
                    begin += allowed
        finally:
            self._catch_up = None
        self.transfer()

    def _send(self, piece: memoryview) -> None:
        self._write_header(self.next_offset, len(piece))
        if self._transport is not None:
            self._transport.write(piece)
            self.next_offset += len(piece)
            self._sent_bytes += len(piece)
            self._window_bytes += len(piece)

    def _write_header(self, offset: int, size: int) -> None:
        if self._transport is not None:
            self._transport.write(TRANSFER_HEADER.pack(offset, size))
            self._last_written = self._loop.time()

    def check(self) -> None:
        """Send a heartbeat if one is due; close the connection if the slave is silent."""
        now = self._loop.time()
        self.bytes_per_s = int(self._sent_bytes / max(now - self._last_check, _MOMENT_S))
        self._last_check, self._sent_bytes = now, 0
        if now - self._last_heard > self._config.ha_housekeeping_interval / 1000:
            self.close(
                f"it has reported nothing for {self._config.ha_housekeeping_interval} ms (haHousekeepingInterval)"
            )
            return
        shake = self._handshake
        if not shake.is_over and (self._access.is_required or shake.has_begun) and now - self.begun_at > HANDSHAKE_S:
            self._refuse(
                HandshakeError(
                    f"it has not proved within {HANDSHAKE_S:g} s that it knows innerClientAuthenticationCredentials"
                )
            )
            return
        self.transfer()
        due = now - self._last_written > self._config.ha_send_heartbeat_interval / 1000
        if due and self.next_offset >= 0 and self._can_write.is_set() and self._catch_up is None:
            self._write_header(self.next_offset, 0)

    def close(self, reason: str, *, after_writes: bool = False) -> None:
        """Close the connection and log the reason.

        Drop unsent bytes unless ``after_writes`` is true: a slave that does not read would keep the connection open.
        """
        if self._transport is not None:
            log.warning("HAService: the connection of the slave at %s is closed: %s", self.peer, reason)
            if after_writes:
                self._transport.close()
            else:
                self._transport.abort()
            self._forget()

    def _forget(self) -> None:
        self._transport = None
        self._can_write.set()
        if self._window_over is not None:
            self._window_over.cancel()
        self._owner.gone(self)

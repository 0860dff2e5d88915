"""Heartbeats to brokers, also while user code blocks the event loop (MQClientInstance.sendHeartbeatToAllBroker)."""

import asyncio
import logging
import math
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType

from rocketbroker.client.core.requests import FailureLog, check_success, client_request
from rocketbroker.codec.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from rocketbroker.codec.remoting.headers.admin import UnregisterClientRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingTimeoutError, RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)


class HeartbeatSender:
    """Send heartbeats of all groups of a client: to a broker on first use, then regularly.

    Args:
        remoting: connections to brokers.
        client_id: the id of the client, unique among all clients.
        broker_addresses: returns the addresses to send to; called with ``masters_only``.
        interval_s: seconds between heartbeats (heartbeatBrokerInterval).
        timeout_s: limit for a broker's answer.
    """

    def __init__(
        self,
        remoting: RemotingClient,
        client_id: str,
        broker_addresses: Callable[[bool], set[str]],
        *,
        interval_s: float = 30.0,
        timeout_s: float = 3.0,
    ) -> None:
        self._remoting = remoting
        self.client_id = client_id
        self._broker_addresses = broker_addresses
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._producers: set[str] = set()
        self._consumers: dict[str, ConsumerData] = {}
        # Brokers that a heartbeat was ever sent to. Those without a connection have forgotten the client.
        self._known: set[str] = set()
        # Brokers whose last heartbeat had the current groups.
        self._greeted: set[str] = set()
        # The last heartbeat to each broker, done when it has ended.
        self._heartbeats: dict[str, asyncio.Future[None]] = {}
        # Ordinals of MQVersion in the answers of connected brokers to heartbeats.
        self._versions: dict[str, int] = {}
        self._failures = FailureLog(log)
        self._tasks = TaskOwner("heartbeat-sender")

    async def start(self) -> None:
        """Start the regular heartbeats."""
        self._tasks.every(self._interval_s, self.send_to_all, "send")

    async def stop(self) -> None:
        """Stop the heartbeats."""
        await self._tasks.stop()

    def register_producer(self, group: str) -> None:
        """Add a producer group to the heartbeats."""
        self._producers.add(group)
        self._greeted.clear()

    def register_consumer(self, data: ConsumerData) -> None:
        """Add a consumer group and its subscriptions to the heartbeats, or replace them."""
        self._consumers[data.group_name] = data
        self._greeted.clear()

    async def unregister_producer(self, group: str) -> None:
        """Unregister a producer group at all brokers that may know it."""
        self._producers.discard(group)
        await self._unregister(UnregisterClientRequestHeader(self.client_id, producer_group=group))

    async def unregister_consumer(self, group: str) -> None:
        """Unregister a consumer group at all brokers that may know it."""
        self._consumers.pop(group, None)
        await self._unregister(UnregisterClientRequestHeader(self.client_id, consumer_group=group))

    async def greet(self, address: str, timeout_s: float | None = None) -> None:
        """Send a heartbeat to a broker unless it knows the current groups; log a failure.

        After ``timeout_s`` the heartbeat goes on behind this.
        """
        if address not in self._greeted:
            await asyncio.wait([self._tasks.start(self._send(address), "greet")], timeout=timeout_s)

    async def broker_version(self, address: str, timeout_s: float) -> int | None:
        """Wait for the heartbeat under way; return the ordinal of a broker's version in MQVersion, None if unknown.

        Raises:
            RemotingTimeoutError: The heartbeat was not answered in time.
        """
        heartbeat = self._heartbeats.get(address)
        if address not in self._versions and heartbeat is not None:
            done, _ = await asyncio.wait([heartbeat], timeout=timeout_s)
            if not done:
                raise RemotingTimeoutError(f"no answer from {address} to a heartbeat within {timeout_s:g} s")
        return self._versions.get(address)

    def greet_soon(self, address: str) -> None:
        """Send a heartbeat like ``greet``, in a task."""
        if address not in self._greeted:
            self._tasks.start(self._send(address), "greet")

    def connection_lost(self) -> None:
        """Greet brokers without a connection again on next use: brokers forget a client with its connection."""
        self._greeted = set(filter(self._remoting.is_connected, self._greeted))
        # A broker may have another version after a restart.
        self._versions = {each: self._versions[each] for each in filter(self._remoting.is_connected, self._versions)}

    async def send_to_all(self) -> None:
        """Send a heartbeat to all brokers of known routes; without consumers, to masters only."""
        if not self._producers and not self._consumers:
            return
        await asyncio.gather(*map(self._send, self._broker_addresses(not self._consumers)))

    def send_from_thread(self) -> int:
        """Send a heartbeat to all brokers that know the client, from another thread while the event loop is blocked.

        Return the number of brokers that it went to.
        """
        return sum(self._remoting.send_from_thread(address, self._request()) for address in tuple(self._known))

    def _request(self) -> Command:
        producers = [ProducerData(group) for group in sorted(self._producers)]
        body = HeartbeatData(self.client_id, producers, list(self._consumers.values())).encode()
        return client_request(RequestCode.HEART_BEAT, body=body)

    def _send(self, address: str) -> Coroutine[None, None, None]:
        """Note that a broker is greeted from now on; return the sending of the heartbeat."""
        self._known.add(address)
        self._greeted.add(address)
        heartbeat = self._heartbeats[address] = asyncio.get_running_loop().create_future()
        return self._send_noted(address, heartbeat)

    async def _send_noted(self, address: str, heartbeat: asyncio.Future[None]) -> None:
        try:
            answer = await self._remoting.invoke(address, self._request(), self._timeout_s)
            self._versions[address] = answer.version  # that of a refusal as well
            check_success(answer)
        except RocketBrokerError as error:
            self._greeted.discard(address)
            self._failures.warning("heartbeat to %s failed: %s", address, error)
        finally:
            heartbeat.set_result(None)

    async def _unregister(self, header: UnregisterClientRequestHeader) -> None:
        addresses = self._greeted.union(filter(self._remoting.is_connected, self._known))
        await asyncio.gather(*(self._unregister_at(address, header) for address in addresses))

    async def _unregister_at(self, address: str, header: UnregisterClientRequestHeader) -> None:
        try:
            command = client_request(RequestCode.UNREGISTER_CLIENT, header)
            check_success(await self._remoting.invoke(address, command, self._timeout_s))
        except RocketBrokerError as error:
            log.warning("unregistering at %s failed: %s", address, error)


_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


class LoopWatchdog:
    """Watch over the event loop of one client: a warning names the call that blocks it, and heartbeats continue.

    Brokers give up a client without heartbeats for two minutes, and its queues go to other members. All clients on a
    loop share one thread.

    Args:
        send_heartbeats: sends heartbeats to all brokers and returns their number; called in the thread while the loop
            is blocked.
        heartbeat_interval_s: seconds between heartbeats.
        warn_after_s: seconds of a blocked loop after which a warning names the call.
    """

    def __init__(
        self, send_heartbeats: Callable[[], int], heartbeat_interval_s: float, warn_after_s: float = 2.0
    ) -> None:
        self._send_heartbeats = send_heartbeats
        self._heartbeat_interval_s = heartbeat_interval_s
        self.warn_after_s = warn_after_s
        self.period_s = min(1.0, warn_after_s / 2, heartbeat_interval_s / 2)
        self._sent_at = 0.0
        self._thread: _WatchThread | None = None

    async def start(self) -> None:
        """Watch the running loop."""
        loop = asyncio.get_running_loop()
        thread = _threads.get(loop)
        if thread is None or not thread.is_alive:  # it is not in a forked process
            thread = _threads[loop] = _WatchThread(loop)
        thread.add(self)
        self._thread = thread

    async def stop(self) -> None:
        """Watch no longer; the last client on the loop ends the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.remove(self)

    def send_if_due(self, asked_at: float, now: float) -> int:
        """Send heartbeats if the loop, blocked since ``asked_at``, should have sent some; return their number."""
        if now < max(asked_at, self._sent_at) + self._heartbeat_interval_s:
            return 0
        self._sent_at = now
        return self._send_heartbeats()


class _WatchThread:
    """Thread that looks whether one event loop answers.

    Args:
        loop: the running loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._watchdogs: tuple[LoopWatchdog, ...] = ()
        # Time at which the loop was asked for a sign of life; None once it gave it.
        self._asked_at: float | None = None
        self._warned = False
        self._sent = 0
        self._stopping = threading.Event()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="loop-watchdog", daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def add(self, watchdog: LoopWatchdog) -> None:
        """Watch for a client; the first one starts the thread."""
        self._watchdogs = (*self._watchdogs, watchdog)
        if len(self._watchdogs) == 1:
            self._thread.start()

    async def remove(self, watchdog: LoopWatchdog) -> None:
        """Forget a client; end the thread after the last one."""
        self._watchdogs = tuple(each for each in self._watchdogs if each is not watchdog)
        if self._watchdogs:
            return
        if _threads.get(self._loop) is self:
            del _threads[self._loop]
        self._stopping.set()
        # Not by a thread that joins this one: executors are gone when the interpreter ends. A forked process has no
        # thread, and one whose loop was closed ends by itself.
        if self.is_alive and self._loop is asyncio.get_running_loop():
            await self._stopped.wait()
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(min((each.period_s for each in self._watchdogs), default=0.0)):
            if self._loop.is_closed():
                _threads.pop(self._loop, None)
                return
            try:
                self._look()
            except Exception:
                log.exception("the watchdog of the event loop failed; it continues")
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stopped.set)

    def _look(self) -> None:
        now, asked_at = time.monotonic(), self._asked_at
        if not self._loop.is_running():
            self._asked_at, self._warned = None, False
            return
        if asked_at is None:
            self._asked_at, self._sent = now, 0
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._answer)
            return
        watchdogs = self._watchdogs
        if not self._warned and now - asked_at >= min((each.warn_after_s for each in watchdogs), default=math.inf):
            self._warned = True
            self._warn(now - asked_at)
        for each in watchdogs:
            self._sent += each.send_if_due(asked_at, now)

    def _answer(self) -> None:
        if self._warned and self._asked_at is not None:
            blocked_s = time.monotonic() - self._asked_at
            log.warning("the event loop runs again after %.1f s; heartbeats sent meanwhile: %d", blocked_s, self._sent)
        self._warned = False
        self._asked_at = None
        self._loop_thread = threading.get_ident()

    def _warn(self, blocked_s: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return
        log.warning(
            "the event loop has been blocked for %.1f s by %s. Nothing else runs on it; heartbeats are sent. Await an "
            "asynchronous call there, or run it by asyncio.to_thread. Its stack:\n%s",
            blocked_s,
            blocking_call(frame),
            "".join(traceback.format_stack(frame)),
        )


_threads: dict[asyncio.AbstractEventLoop, _WatchThread] = {}


def blocking_call(frame: FrameType) -> str:
    """Return the place and the text of the innermost call outside the standard library."""
    stack = traceback.extract_stack(frame)
    own = [each for each in stack if not _is_standard(each.filename)] or stack
    call = own[-1]
    return f"{call.line or call.name!r} ({call.filename}:{call.lineno}, in {call.name})"


def _is_standard(filename: str) -> bool:
    return filename.startswith((_STANDARD_LIBRARY, "<frozen")) and "site-packages" not in filename

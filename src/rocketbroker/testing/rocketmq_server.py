"""A name server and brokers inside a test, on a thread of their own; a power loss takes what they had not flushed."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import FIRST_BROKER, DevBroker, DevServer, disk_use, small_files
from rocketbroker.app.launch.first_users import ADMIN, FirstUsers
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.client_config import ClientConfig, SessionCredentials
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.config.hosts import LOOPBACK
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.config.proxy_config import grpc_properties
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import MustClose
from rocketbroker.testing import stored_state
from rocketbroker.testing.clocks import ClockedEventLoop, MovableClock
from rocketbroker.testing.faults import Faults
from rocketbroker.testing.stored_state import lag_difference, message_difference, offset_difference, total_lag

T = TypeVar("T")


class ServerStateError(RocketBrokerError):
    """Use of a RocketMQServer before its start, after its stop, or while it is frozen."""


class ServerThread:
    """A thread that runs an event loop from ``start`` to ``stop``.

    Args:
        make_loop: makes the loop.
    """

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._loop = make_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="RocketMQServer", daemon=True)
        self._thawed = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._stopping.wait()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop, and wait for its result."""

        async def run() -> T:
            return function()

        return self.submit(run()).result()

    def freeze(self) -> None:
        """Hold the loop until ``thaw``."""
        held = threading.Event()

        def hold() -> None:
            held.set()
            self._thawed.wait()

        self._thawed.clear()
        self._loop.call_soon_threadsafe(hold)
        held.wait()

    def thaw(self) -> None:
        """Let the loop run."""
        self._thawed.set()

    def stop(self) -> None:
        """Let the loop end."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()


class PowerLoss:
    """Contents of a store's disk at one moment, to be restored after the broker has stopped.

    Args:
        broker: the running broker.
    """

    def __init__(self, broker: BrokerController) -> None:
        store = broker.store
        self._log = store.config.commit_log_dir
        self._flushed = store.flusher.flushed_offset
        self._tables = store.config.config_dir
        kept = [*_files(self._tables), store.config.checkpoint_path, store.config.abort_path]
        self._contents = {path: path.read_bytes() for path in kept if path.exists()}

    def restore(self) -> None:
        """Clear the CommitLog from the flushed offset on, and restore all tables (blocks)."""
        for path in self._log.iterdir():
            _clear(path, max(self._flushed - int(path.name), 0))
        for path in _files(self._tables):
            path.unlink()
        for path, content in self._contents.items():
            path.write_bytes(content)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _clear(path: Path, position: int) -> None:
    """Write zeros from a position on, in place of all bytes that are not zero."""
    with path.open("r+b") as file:
        file.seek(position)
        while block := file.read(1024 * 1024):
            if block.strip(b"\0"):
                file.seek(position)
                file.write(bytes(len(block)))
            position += len(block)
            file.seek(position)


_POLL_S = 0.01
_BROKER_NAMES = tuple(f"broker-{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
# The clock that tests move must not end connections that are in use. The log is flushed by SYNC_FLUSH and by ``flush``
# alone, so that a test knows what a power loss takes.
_PROPERTIES = {
    "flushIntervalCommitLog": "60000",
    "flushCommitLogThoroughInterval": "600000",
    "channelExpiredTimeout": "86400000",
    "serverChannelMaxIdleTimeSeconds": "86400",
}


def _tls_within(properties: Mapping[str, str]) -> dict[str, str]:
    """Return settings by which servers that take TLS alone reach each other; properties given win over them."""
    if properties.get("tls.server.mode", "").strip().lower() != "enforcing":
        return {}
    # All of them are in this process, so certificates need no check unless the test brings their issuer.
    is_checked = "tls.client.trustCertPath" in properties
    return {"tls.enable": "true", "tls.client.authServer": str(is_checked).lower()}


class RocketMQServer(MustClose):
    """A name server and brokers for tests, in this process, on free ports and in a temporary folder.

    ``async with RocketMQServer() as mq`` in asyncio tests, ``with RocketMQServer() as mq`` in others. The server
    runs on a thread with a loop of its own. Its methods may be called from any thread, and return when they have taken
    effect.

    Args:
        properties: settings of the brokers by RocketMQ's names, such as ``{"flushDiskType": "SYNC_FLUSH"}``; those of
            connections count for the name server, too. With ``tls.server.mode=enforcing`` the servers use TLS among
            themselves, and check certificates if ``tls.client.trustCertPath`` names their issuer.
        brokers: number of brokers: broker-a, broker-b and so on.
        store: folder that keeps the data; None for a temporary one.
        namesrv_port: port of the name server; 0 picks a free one.
        broker_port: port of the first broker; 0 picks a free one.
        host: address to listen on.
        advertise: address that clients connect to; the default is ``host``, or this machine's if ``host`` is 0.0.0.0.
        grpc: serve the 5.x SDKs too, at ``endpoints``; it needs the extra ``grpc``.
        users: serve requests of these users alone, with the rights of ``policies``: secrets by name. Each server has
            the user ``admin`` as well, who may do everything.
        policies: by name of a user, actions by resource: ``{"shop": {"Topic:orders": "Pub,Sub", "Group:g": "Sub"}}``.

    Raises:
        ConfigError: A user or a policy is not valid.

    Attributes:
        clock: clock of the server, which a test can move forward.
        faults: faults that a test can order.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of a test
        self,
        properties: Mapping[str, str] | None = None,
        *,
        brokers: int = 1,
        store: Path | None = None,
        namesrv_port: int = 0,
        broker_port: int = 0,
        host: str = LOOPBACK,
        advertise: str | None = None,
        grpc: bool = False,
        users: Mapping[str, str] | None = None,
        policies: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        if not 1 <= brokers <= len(_BROKER_NAMES):
            raise ValueError(f"brokers={brokers}; give a number from 1 to {len(_BROKER_NAMES)}")
        self.clock = MovableClock(self._wake)
        self.faults = Faults()
        self._disk_percent = 0
        self._thread: ServerThread | None = None
        self._is_frozen = False
        self._life = asyncio.Lock()
        self._users = None if users is None and policies is None else FirstUsers(users or {}, policies or {})
        self._server = DevServer(
            namesrv_port,
            broker_port,
            store,
            host=host,
            advertise=advertise,
            brokers=_BROKER_NAMES[:brokers],
            properties=small_files(
                _PROPERTIES
                | (grpc_properties(0) if grpc else {})
                | _tls_within(properties or {})
                | dict(properties or {})
            ),
            bind=self._bind,
            users=self._users,
        )

    def _bind(self, settings: BrokerSettings) -> BrokerController:
        return BrokerController.bind(
            settings,
            self.clock,
            measure_disk=lambda _folder: disk_use(self._disk_percent),
            interpose=partial(self.faults.interpose, settings.broker.broker_name),
        )

    # -- life

    def __enter__(self) -> Self:
        starting = self._begin()
        try:
            starting.result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def __aenter__(self) -> Self:
        starting = self._begin()
        try:
            await asyncio.shield(asyncio.wrap_future(starting))  # the whole start, which the end can undo
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = self._leave()
        try:
            await asyncio.shield(asyncio.wrap_future(thread.submit(self._stop())))
        finally:
            self._finish(thread)

    def _begin(self) -> Future[None]:
        if self._thread is not None:
            raise ServerStateError("RocketMQServer runs already; make another one for a second server")
        self._thread = ServerThread(lambda: ClockedEventLoop(self.clock))
        self._thread.start()
        self.mark_open()
        self._life = asyncio.Lock()
        return self._thread.submit(self._start())

    async def _start(self) -> None:
        async with self._life:
            await self._server.start()

    async def _stop(self) -> None:
        async with self._life:  # a start that nobody waits for may still be under way
            await self._server.stop()

    def _end(self) -> None:
        self._finish(self._leave())

    def _finish(self, thread: ServerThread) -> None:
        """Stop what still runs, and the thread."""
        try:
            thread.submit(self._stop()).result()
        finally:
            thread.stop()
            thread.join()

    def _leave(self) -> ServerThread:
        """Make every further call an error; return the thread, which is to be stopped."""
        self.thaw()
        thread, self._thread = self._running(), None
        self.mark_closed()
        return thread

    def _running(self) -> ServerThread:
        if self._thread is None:
            raise ServerStateError("RocketMQServer does not run; use it within 'with' or 'async with'")
        if self._is_frozen:
            raise ServerStateError("RocketMQServer is frozen; thaw it first")
        return self._thread

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            thread = self._running()
        except ServerStateError:
            work.close()
            raise
        return thread.submit(work).result()

    def _wake(self) -> None:
        self._running().call(lambda: None)

    def reset(self) -> None:
        """Make the server as new, on the same addresses, for the next test.

        No topic, group, message or offset is left, all brokers run, disks are free, and no fault is ordered. The clock
        shows the system's time. Connections of clients are closed; clients connect again.

        Raises:
            ServerStateError: The server has a store that is to be kept.
        """
        if self._server.keeps_store:
            raise ServerStateError(f"reset() would remove what {self._server.store} keeps; leave out store=")
        self.thaw()
        self.faults.clear()
        self._disk_percent = 0
        self._run(self._reset())

    async def _reset(self) -> None:
        async with self._life:
            await self._server.reset(self.clock.set_back)

    # -- addresses

    @property
    def namesrv_addr(self) -> str:
        """``host:port`` of the name server, for clients of any language."""
        self._running()
        return self._server.namesrv_addr

    @property
    def broker_addr(self) -> str:
        """``host:port`` of the first broker."""
        self._running()
        return self._server.broker_addr

    @property
    def endpoints(self) -> str:
        """``host:port`` for the 5.x SDKs, of the first broker; empty without ``grpc``."""
        self._running()
        return self._server.endpoints

    def credentials(self, name: str = ADMIN) -> SessionCredentials:
        """Return the credentials of a user for a client: ``ClientConfig(mq.namesrv_addr, credentials=...)``.

        Raises:
            ServerStateError: The server was made without this user.
        """
        secret = None if self._users is None else self._users.secrets.get(name)
        if secret is None:
            raise ServerStateError(f"there is no user {name}; give its secret in RocketMQServer(users=...)")
        return SessionCredentials(name, secret)

    @property
    def broker_names(self) -> tuple[str, ...]:
        """Names of the brokers."""
        return tuple(broker.name for broker in self._brokers())

    @property
    def store(self) -> Path:
        """Folder of all data."""
        self._running()
        return self._server.store

    # -- faults

    def freeze(self) -> None:
        """Let no server do anything until ``thaw``: connections stay open, and nothing is answered."""
        self._running().freeze()
        self._is_frozen = True

    def thaw(self) -> None:
        """Let a frozen server run."""
        if self._thread is not None and self._is_frozen:
            self._is_frozen = False
            self._thread.thaw()

    def cut_connections(self) -> None:
        """Close all connections of clients to brokers."""
        self._running().call(self.faults.close_connections)

    def stop_broker(self, name: str = FIRST_BROKER) -> None:
        """Take a broker away: it leaves the routes, and its address refuses connections."""
        self._run(self._broker(name).stop(keep_ports=True))

    def start_broker(self, name: str = FIRST_BROKER) -> None:
        """Bring a stopped broker back, on the same address."""
        self._run(self._broker(name).start())

    def restart_broker(self, name: str = FIRST_BROKER, *, lose_unflushed: bool = False) -> None:
        """Stop and start a broker; ``lose_unflushed`` takes what was not on disk, as a power loss does.

        What is on disk is what ``flush`` wrote, and each message acknowledged with ``flushDiskType=SYNC_FLUSH``.
        """
        self._run(self._restart(self._broker(name), lose_unflushed=lose_unflushed))

    async def _restart(self, broker: DevBroker, *, lose_unflushed: bool) -> None:
        loss = PowerLoss(broker.controller) if lose_unflushed else None
        await broker.stop(keep_ports=True)
        if loss is not None:
            loss.restore()
        await broker.start()

    def flush(self) -> None:
        """Write all messages and offsets to disk."""
        self._run(self._flush())

    async def _flush(self) -> None:
        for broker in self._brokers():
            if broker.is_running:
                await broker.controller.flush()

    def fill_disk(self) -> None:
        """Make the brokers see full disks, so that they reject sends."""
        self._run(self._set_disk(99))

    def free_disk(self) -> None:
        """Let the brokers find their disks empty: they accept sends."""
        self._run(self._set_disk(0))

    async def _set_disk(self, percent: int) -> None:
        self._disk_percent = percent
        for broker in self._brokers():
            if broker.is_running:
                await broker.controller.cleaning.clean()

    def _brokers(self) -> Collection[DevBroker]:
        self._running()
        return self._server.brokers.values()

    def _broker(self, name: str) -> DevBroker:
        self._running()
        if name not in self._server.brokers:
            raise ValueError(f"no broker {name!r}; there are {', '.join(self._server.brokers)}")
        return self._server.brokers[name]

    # -- what is stored

    def create_topic(self, topic: str, message_type: str = "NORMAL") -> None:
        """Create a topic on all brokers, for messages of a type: NORMAL, FIFO, DELAY, TRANSACTION or PRIORITY.

        The 5.x SDKs need it before their first send; other clients create a topic by sending to it.
        """
        self._run(self._create_topic(TopicConfig(topic, 8, 8, attributes={"+message.type": message_type})))

    async def _create_topic(self, config: TopicConfig) -> None:
        config_of_admin = ClientConfig(
            self._server.namesrv_addr,
            credentials=None if self._users is None else self.credentials(ADMIN),
            tls=await asyncio.to_thread(self._server.inner_tls),
        )
        async with AdminClient(config_of_admin) as admin:
            for broker in self._brokers():
                await admin.create_and_update_topic_config(broker.address, config)

    def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of a topic in the order in which they were stored."""
        return self._run(stored_state.stored_messages(self._brokers(), topic))

    def dead_letters(self, group: str) -> list[MessageExt]:
        """Return the dead letters of a consumer group."""
        return self.messages(DLQ_GROUP_TOPIC_PREFIX + group)

    def offsets(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Return the committed offsets of a consumer group by queue."""
        return self._running().call(lambda: stored_state.committed_offsets(self._brokers(), group, topic))

    def lag(self, group: str, topic: str) -> int:
        """Return how many messages of a topic a consumer group has not committed."""
        return total_lag(*self._progress(group, topic))

    def _progress(self, group: str, topic: str) -> tuple[dict[MessageQueue, tuple[int, int]], dict[MessageQueue, int]]:
        brokers = self._brokers()
        return self._running().call(
            lambda: (stored_state.end_offsets(brokers, topic), stored_state.committed_offsets(brokers, group, topic))
        )

    # -- assertions

    def assert_messages(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Assert that a topic has messages with these bodies, in the order in which they were stored."""
        _fail_with(message_difference(f"messages of topic {topic}", bodies, self.messages(topic)))

    def assert_dead_letters(self, group: str, bodies: Sequence[bytes]) -> None:
        """Assert that a consumer group has dead letters with these bodies, in the order in which they were stored."""
        _fail_with(message_difference(f"dead letters of group {group}", bodies, self.dead_letters(group)))

    def assert_lag(self, group: str, topic: str, messages: int = 0) -> None:
        """Assert how many messages of a topic a consumer group has not committed."""
        _fail_with(lag_difference(group, messages, *self._progress(group, topic)))

    def assert_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Assert the committed offsets of a consumer group by queue id."""
        _fail_with(offset_difference(group, topic, offsets, self.offsets(group, topic)))

    async def eventually(self, check: Callable[[], object], within_s: float = 5.0) -> None:
        """Repeat a check until it neither raises AssertionError nor returns False.

        Raises:
            AssertionError: The check still fails after that many seconds of real time; its last error.
        """
        for _ in _turns(check, within_s):
            await asyncio.sleep(_POLL_S)

    def wait_until(self, check: Callable[[], object], within_s: float = 5.0) -> None:
        """Repeat a check as ``eventually`` does, in a test without asyncio."""
        for _ in _turns(check, within_s):
            time.sleep(_POLL_S)


def _fail_with(difference: str) -> None:
    if difference:
        raise AssertionError(difference)


def _turns(check: Callable[[], object], within_s: float) -> Iterator[None]:
    """Call a check in each turn, until it holds; raise its error when the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        is_last = time.monotonic() >= deadline
        try:
            if check() is not False:
                return
        except AssertionError:
            if is_last:
                raise
        if is_last:
            raise AssertionError(f"the check returned False for {within_s:g} s")
        yield

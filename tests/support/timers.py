"""A timer over a real store, whose time a test moves, and which a test stops in order or leaves as a kill would."""

from collections.abc import Callable
from pathlib import Path

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.waiting_messages import CopyDelivery, Put
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.stores import V4_HOST, read_queue

TIMER_TOPIC = "rmq_sys_wheel_timer"


async def nothing_failed() -> set[Path]:
    return set()


class Timer:
    """Sends timer messages and delivers them.

    Args:
        store: started, with the clock.
        clock: the time.
        put, may_deliver: see ``CopyDelivery``.
        settings: of ``MessageStoreConfig``.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: FakeClock,
        put: Put | None = None,
        may_deliver: Callable[[], bool] = lambda: True,
        **settings,
    ) -> None:
        self.store = store
        self.clock = clock
        self.config = MessageStoreConfig(store_path_root_dir=store.config.store_path_root_dir, **settings)
        self.config.config_dir.mkdir(exist_ok=True)
        self.path = self.config.config_dir / "timerProgress.json"
        progress = TimerProgress(self.path, store.flusher, self._write)
        stats = BrokerStatsManager(clock, "C")
        self.service = TimerMessageStore(
            self.config,
            CopyDelivery(store.appender, store.entry_reader, stats, V4_HOST, put=put, may_deliver=may_deliver),
            store.queues,
            store.flusher,
            progress,
            nothing_failed,
            clock=clock,
        )
        self.rewrite = HandleScheduleMessage(self.config, clock, 18, lambda: self.service.precision_ms)

    def _write(self, table: AnyConfigManager) -> None:
        self.path.write_bytes(table.encode())

    async def load(self) -> "Timer":
        """Load the timer as a start of the broker does."""
        self.service.progress.load()
        await self.service.load()
        return self

    async def run(self) -> None:
        """Take in and deliver all messages that are due."""
        while await self.service.advance() == 0.0:
            pass

    async def stop(self) -> None:
        """Stop as a broker does on a clean stop."""
        await self.service.stop()

    def put(self, body: bytes = b"body", topic: str = "T", **properties: object) -> MessageExtBrokerInner:
        """Send a message with these properties; return it as it is stored."""
        raw = encode_properties({"TAGS": "A", **{name: str(value) for name, value in properties.items()}})
        message = MessageExtBrokerInner(topic, 1, body, raw)
        message.born_timestamp, message.reconsume_times = 1, 2
        self.rewrite(message)
        assert self.store.appender.put_message(message).status is PutMessageStatus.PUT_OK
        self.store.appender.dispatch()
        return message

    def delivered(self, topic: str = "T", queue_id: int = 1) -> list[MessageExt]:
        """Return the messages that consumers find."""
        return read_queue(self.store, topic, queue_id)

    def bodies(self, topic: str = "T") -> list[bytes]:
        return [message.body for message in self.delivered(topic)]

    @property
    def slot_files(self) -> list[str]:
        folder = Path(self.config.store_path_root_dir, "timerslots")
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

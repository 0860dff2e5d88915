"""Periodic writes of consumer offsets and of the progress of delayed messages (BrokerController's timers)."""

import asyncio
from collections.abc import Callable
from functools import partial

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.schedule.schedule_message_service import ScheduleMessageService
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.lifecycle import TaskOwner, until_tick


class OffsetFlushService:
    """Flushes every ``flushConsumerOffsetInterval`` and ``flushDelayOffsetInterval``, and at the stop.

    Stop it after the parts that change offsets, and before ``ConfigPersistService``, which writes them.
    """

    def __init__(
        self,
        consumer_offsets: ConsumerOffsetManager,
        schedule_message_service: ScheduleMessageService,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
    ) -> None:
        self._consumer_offsets = consumer_offsets
        self._schedule_message_service = schedule_message_service
        self._config = config
        self._store_config = store_config
        self._tasks = TaskOwner("OffsetFlushService")

    async def start(self) -> None:
        """Start flushing."""
        config, store_config = self._config, self._store_config
        consumer, delay = self._consumer_offsets.flush, self._schedule_message_service.flush
        flush_consumer = partial(_repeat, lambda: config.flush_consumer_offset_interval, consumer)
        flush_delay = partial(_repeat, lambda: store_config.flush_delay_offset_interval, delay)
        self._tasks.forever(flush_consumer, "consumer offsets")
        self._tasks.forever(flush_delay, "delay offsets")

    async def stop(self) -> None:
        """Flush a last time."""
        await self._tasks.stop()
        self._consumer_offsets.flush()
        self._schedule_message_service.flush()


async def _repeat(interval_ms: Callable[[], int], action: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(until_tick(interval_ms() / 1000))  # called each time: both settings can change at run time
        action()

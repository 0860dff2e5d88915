import asyncio
from types import SimpleNamespace

from rocketbroker.broker.offset.offset_flush_service import OffsetFlushService
from rocketbroker.common import lifecycle
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from tests.support.waiting import until


def counter():
    table = SimpleNamespace(flushes=0)

    def flush():
        table.flushes += 1

    table.flush = flush
    return table


async def test_flushes_by_interval_and_at_the_end():
    consumer, delay = counter(), counter()
    config = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", flush_consumer_offset_interval=100)
    service = OffsetFlushService(consumer, delay, config, MessageStoreConfig(flush_delay_offset_interval=60_000))
    await service.start()
    async with asyncio.timeout(60):
        while consumer.flushes < 2:  # noqa: ASYNC110 - a timer tells nobody
            await asyncio.sleep(0.01)
    assert delay.flushes == 0
    before = consumer.flushes
    await service.stop()
    assert (consumer.flushes, delay.flushes) == (before + 1, 1)


async def test_an_error_that_nobody_foresaw_ends_no_flushing(caplog, monkeypatch):
    monkeypatch.setattr(lifecycle, "RESTART_S", 0.0)
    consumer, delay = counter(), counter()
    config = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", flush_consumer_offset_interval=100)
    flushed = []

    def flush():
        flushed.append(1)
        if len(flushed) == 1:
            raise RuntimeError("dictionary changed size during iteration")

    consumer.flush = flush
    service = OffsetFlushService(consumer, delay, config, MessageStoreConfig(flush_delay_offset_interval=60_000))
    await service.start()
    await until(lambda: len(flushed) > 1)
    await service.stop()
    assert "OffsetFlushService.consumer offsets failed" in caplog.text

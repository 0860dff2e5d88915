"""Metrics of a store."""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.common.errors import CorruptRecordError
from rocketbroker.metrics import store_metrics
from rocketbroker.metrics.store_metrics import DefaultStoreMetricsManager
from rocketbroker.store.clean.disk_watch import DiskUse
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from tests.support.fakes import FakeClock
from tests.support.running import running
from tests.support.stores import make_store
from tests.support.timers import Timer


async def test_figures_of_store_and_timer(tmp_path: Path):
    clock, meters = FakeClock(), MessageMeters()
    async with running(make_store(tmp_path / "store", clock, mapped_file_size_consume_queue=20_000)) as store:
        timer = await Timer(store, clock).load()
        manager = DefaultStoreMetricsManager(store, timer.service, meters, clock, lambda _: DiskUse(7, 9))
        assert value(await manager.families(), "storage_message_reserve_time_milliseconds") == 0
        store.appender.put_message(MessageExtBrokerInner("T", 0, b"x", b"UNIQ_KEY\x01A\x02"))
        clock.advance(5)
        meters.timer_enqueued["T"] += 2
        meters.timer_delivered("T", 90.0)
        found = await manager.families()

        assert value(found, "storage_size_bytes") == 7
        assert value(found, "storage_flush_behind_bytes") == store.commit_log.max_offset - store.flusher.flushed_offset
        assert value(found, "storage_dispatch_behind_bytes") > 0
        assert value(found, "storage_message_reserve_time_milliseconds") == 5_000
        assert value(found, "timer_enqueue_total") == 2
        assert value(found, "timing_messages") == 0
        assert value(found, "delay_message_latency_seconds").buckets[1] == 1
        store.appender.dispatch()
        assert value(await manager.families(), "storage_dispatch_behind_bytes") == 0


def value(families: list[Any], name: str) -> Any:
    (family,) = [each for each in families if each.name == f"rocketmq_{name}"]
    ((labels, found),) = family.samples
    assert labels.items() >= {"storage_type": "local", "storage_medium": "disk"}.items()
    return found


async def test_the_timers_lag_is_what_it_has_not_read(tmp_path: Path):
    clock = FakeClock()
    async with running(make_store(tmp_path / "store", clock, mapped_file_size_consume_queue=20_000)) as store:
        timer = await Timer(store, clock).load()
        timer.put(TIMER_DELAY_SEC=5)
        clock.advance(3)
        figures = await timer.service.figures()
        assert (figures.enqueue_lag, figures.enqueue_latency_ms, figures.waiting) == (1, 3_000, 0)
        assert await timer.service.advance() == 0.0  # reads it, and loads its slot
        figures = await timer.service.figures()
        assert (figures.enqueue_lag, figures.dequeue_lag, figures.waiting) == (0, 0, 1)
        clock.advance(7)
        figures = await timer.service.figures()

        assert (figures.dequeue_lag, figures.dequeue_latency_ms > 1_000) == (1, True)


async def test_no_timer_no_figures_of_it(tmp_path: Path):
    clock = FakeClock()
    store = make_store(tmp_path / "store", clock, timer_wheel_enable=False)
    async with running(store):
        timer = await Timer(store, clock).load()
        manager = DefaultStoreMetricsManager(store, timer.service, MessageMeters(), clock, lambda _: DiskUse(7, 9))

        assert not [each.name for each in await manager.families() if "timer" in each.name]


async def test_a_disk_that_fails_or_hangs_costs_its_own_metrics_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    clock, go, asked = FakeClock(), threading.Event(), []

    def hang(_: Path) -> DiskUse:
        asked.append(1)
        go.wait(60)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(store_metrics, "_MEASURE_S", 0.05)
    async with running(make_store(tmp_path / "store", clock, timer_wheel_enable=False)) as store:
        store.appender.put_message(MessageExtBrokerInner("T", 0, b"x", b"UNIQ_KEY\x01A\x02"))
        timer = await Timer(store, clock).load()
        manager = DefaultStoreMetricsManager(store, timer.service, MessageMeters(), clock, hang)
        found = [await manager.families() for _ in range(3)]
        go.set()
        monkeypatch.setattr(store_metrics, "_MEASURE_S", 60)
        found.append(await manager.families())
        monkeypatch.setattr(store_metrics, "decode_record", damaged)
        found.append(await manager.families())

    names = [{each.name.removeprefix("rocketmq_storage_") for each in page if list(each.samples)} for page in found]
    of_memory = {"flush_behind_bytes", "dispatch_behind_bytes"}
    # On a busy machine the oldest message may take longer than a page waits.
    assert [each - {"message_reserve_time_milliseconds"} for each in names[:3]] == [of_memory] * 3
    assert names[3:] == [of_memory | {"message_reserve_time_milliseconds"}, of_memory]
    assert len(asked) == 2, "one for all pages while it hung, and one after it failed"
    assert "did not answer within 0.05 s" in caplog.text


def damaged(*_arguments: object, **_options: object) -> None:
    raise CorruptRecordError("the record is damaged")


async def test_errors_are_ours(tmp_path: Path):
    clock = FakeClock()
    store = make_store(tmp_path / "store", clock)
    async with running(store):
        timer = await Timer(store, clock).load()
        manager = DefaultStoreMetricsManager(store, timer.service, MessageMeters(), clock, lambda _: DiskUse(7, 9))
        store.flusher.errors = 3

        assert [(each.name, list(each.samples)) for each in await manager.own()] == [
            ("rocketbroker_sync_errors_total", [({}, 3)]),
            ("rocketbroker_damaged_messages_total", [({}, 0)]),
            ("rocketbroker_store_disk_used_ratio", [({}, 7 / 9)]),
        ]

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.processor.admin.runtime_info import (
    RuntimeInfoRequests,
    disk_info,
    format_runtime,
    human_readable_byte_count,
)
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.store.clean.disk_watch import measure_disk
from tests.support.processor_calls import call_async, family, recorded
from tests.support.stores import message


@pytest.fixture
def ask(parts, store, schedule):
    async def ask(active=True, problem="", not_ready="", tls=None):
        with ThreadPoolExecutor(1) as executor:
            processor = family(
                RuntimeInfoRequests,
                parts,
                store=store,
                schedule=schedule,
                is_active=lambda: active,
                executor=executor,
                timer_info=lambda: {"timerCongestNum": "7"},
                send_info=lambda: {"sendThreadPoolQueueSize": "3"},
                replication_problem=lambda: problem,
                not_ready=lambda: not_ready,
                measure_disk=measure_disk,
                tls_info=lambda: tls or {},
            )
            answer = await call_async(processor.get_broker_runtime_info)
        assert (answer.code, answer.remark, answer.fields) == (0, None, {})
        assert list(answer.body) == ["table"]
        return answer.body["table"]

    return ask


async def test_a_slave_that_does_not_follow_its_master_says_why(ask):
    assert "replicationProblem" not in await ask()
    assert (await ask(problem="it is ahead"))["replicationProblem"] == "it is ahead"


async def test_values_follow_what_happens(parts, store, schedule, ask):
    empty = await ask(active=False)
    assert empty["brokerActive"] == "false"
    assert empty["earliestMessageTimeStamp"] == "-1"
    assert empty["commitLogMaxOffset"] == empty["putMessageTimesTotal"] == "0"
    started = parts.clock.time_ms()
    parts.clock.advance(3 * 3600 + 62)
    first = parts.clock.time_ms()
    result = store.appender.put_message(message(topic="T", body=b"x" * 2000))
    parts.stats.topic_put("T").add(1, result.size)
    schedule.offset_table[3] = 4

    table = await ask()

    assert table["bootTimestamp"] == str(started)
    assert table["runtime"] == "[ 0 days, 3 hours, 1 minutes, 2 seconds ]"
    assert table["earliestMessageTimeStamp"] == str(first)
    assert table["commitLogMinOffset"] == "0"
    assert table["commitLogMaxOffset"] == table["dispatchBehindBytes"] == str(result.size)
    assert table["remainHowManyDataToFlush"] == human_readable_byte_count(result.size - store.flusher.flushed_offset)
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "1"
    assert table["putMessageSizeTotal"] == str(result.size)
    assert table["scheduleMessageOffset_3"] == "4,0"
    assert table["brokerActive"] == "true"
    store.appender.dispatch()
    store.flusher.flush()
    table = await ask()
    assert (table["dispatchBehindBytes"], table["remainHowManyDataToFlush"]) == ("0", "0 B")


async def test_connections_in_plain_text_are_told(ask):
    assert (await ask(tls={"plainTextConnections": "2"}))["plainTextConnections"] == "2"


async def test_a_broker_that_is_not_ready_says_why(ask):
    assert "notReady" not in await ask()
    assert (await ask(not_ready="disk: it is full"))["notReady"] == "disk: it is full"


async def test_damaged_messages_are_counted_while_there_are_any(ask, store):
    assert "damagedMessages" not in await ask()
    for position in (5, 5, 6):
        store.damage_log.report("/store/commitlog/0", position, "zeros")
    assert (await ask())["damagedMessages"] == "2"


async def test_each_recorded_key_is_answered_in_a_form_that_reads_alike(ask, schedule, store, parts):
    schedule.offset_table = {1: 6, 3: 4}
    store.appender.put_message(message(topic="T"))
    timer = {"timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps"}
    fast_failure = BrokerFastFailure(parts.config)
    ours = await ask() | fast_failure.runtime_info()
    paths = {f"commitLogDiskRatio_{store.config.commit_log_dir}"}
    for _, answer in recorded(28):
        theirs = answer.body["table"]
        disks = {key for key in theirs if key.startswith("commitLogDiskRatio_")}
        delays = {key for key in theirs if key.startswith("scheduleMessageOffset_")}
        assert theirs.keys() - disks - delays - timer <= ours.keys()
        assert ours.keys() - paths <= theirs.keys() | {
            *("scheduleMessageOffset_1", "scheduleMessageOffset_3"),
            *("openFiles", "openFilesLimit", "mappedFiles", "mappedFilesLimit"),
        }
        for key in theirs.keys() & ours.keys():
            assert form_of(ours[key]) == form_of(theirs[key]), key
        assert theirs["brokerVersionDesc"] == ours["brokerVersionDesc"]
        assert len(theirs["putTps"].split()) <= len(ours["putTps"].split()) == 3
        assert ours["remainTransientStoreBufferNumbs"] == theirs["remainTransientStoreBufferNumbs"]
        assert durations(ours["putMessageDistributeTime"]) == durations(theirs["putMessageDistributeTime"])


def durations(distribution: str) -> list[str]:
    return [part.partition(":")[0] for part in distribution.split(" ")]


def form_of(value: str) -> str:
    """Value as a program has to read it: the number of the first word, where it is one."""
    word = (value.split() or [""])[0].replace(".", "", 1).removeprefix("-")
    return "number" if word.isdigit() else "text"


def test_disks_are_asked(tmp_path):
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path / "not" / "made"))
    info = disk_info(config)
    assert 0 < float(info["commitLogDiskRatio"]) <= 1
    assert info[f"commitLogDiskRatio_{config.commit_log_dir}"] == info["commitLogDiskRatio"]
    assert info["consumeQueueDiskRatio"] == info["commitLogDiskRatio"]
    assert info["commitLogDirCapacity"].startswith("Total : ")


def test_a_disk_that_does_not_answer_leaves_its_keys_out(tmp_path, monkeypatch):
    def fail(_path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fail)
    assert disk_info(MessageStoreConfig(store_path_root_dir=str(tmp_path))) == {}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (252 * 1024**3, "252.0 GiB"),
        (2**62, "4.0 EiB"),
    ],
)
def test_byte_counts_for_people(count, text):
    assert human_readable_byte_count(count) == text


def test_runtime_for_people():
    assert format_runtime(636_999) == "[ 0 days, 0 hours, 10 minutes, 36 seconds ]"
    assert format_runtime(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"


async def test_clients_that_disagree_are_counted(ask, consumer):
    assert "subscriptionConflicts" not in await ask()
    consumer("CG", "one", "T", port=50001)
    consumer("CG", "two", "T", "U", port=50002)
    table = await ask()
    assert (table["subscriptionConflicts"], table["subscriptionConflictGroups"]) == ("1", "1")

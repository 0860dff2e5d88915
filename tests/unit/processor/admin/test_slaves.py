"""Tables that slaves copy, and notices between a master and its slaves."""

import pytest

from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.slave.slave_synchronize import TimerMetrics
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.offset import HAConnectionRuntimeInfo, HARuntimeInfo
from rocketbroker.codec.remoting.headers.admin import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from rocketbroker.codec.remoting.headers.message import UpdateConsumerOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint, decode_timer_checkpoint
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.slaves import SlaveRequests
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import answers_to
from tests.support.processor_calls import call, call_async, family, recorded
from tests.support.timers import Timer


async def test_recorded_tables(parts, encoder):
    processor = family(SlaveRequests, parts, encoder=encoder)
    sizes = set()
    for _, theirs in recorded(43):
        parts.offsets.decode(fastjson.dumps(theirs.body))
        ours = await call_async(processor.get_all_consumer_offset)
        # Broadcasting groups keep their offsets under a name with a further @, which Java leaves out of this map.
        ours.body["groupTopicMap"].pop("CG_Bcast@broadcast", None)
        for answer in (ours, theirs):
            for topics in answer.body["groupTopicMap"].values():
                topics.sort()
        assert ours == theirs
        sizes.add(len(theirs.body["offsetTable"]))
    assert len(sizes) > 3


async def test_the_committed_offset_is_answered(parts, encoder):
    header = UpdateConsumerOffsetRequestHeader("G", "T", 3, 17)
    parts.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    body = (await call_async(family(SlaveRequests, parts, encoder=encoder).get_all_consumer_offset)).body
    assert body["offsetTable"] == {"T@G": {3: 17}}
    assert body["groupTopicMap"] == {"G": ["T"]}
    assert "slaveCommitTable" not in body


async def test_a_slave_answers_the_offsets_that_were_committed_at_it(parts, encoder):
    parts.offsets.commit("G", "T", 0, 4)
    parts.offsets.keep_commits()
    processor = family(SlaveRequests, parts, encoder=encoder)
    assert (await call_async(processor.get_all_consumer_offset)).body["slaveCommitTable"] == {}
    parts.offsets.commit("G", "T", 1, 7)
    assert (await call_async(processor.get_all_consumer_offset)).body["slaveCommitTable"] == {"T@G": {1: 7}}


def test_recorded_tables_get_all_delay_offset(schedule):
    processor = family(SlaveRequests, schedule=schedule)
    tables = set()
    for _, theirs in recorded(45):
        schedule.decode(fastjson.dumps(theirs.body))
        assert call(processor.get_all_delay_offset) == theirs
        tables.add(tuple(theirs.body["offsetTable"].items()))
    assert ((1, 6), (3, 4)) in tables


def test_levels_are_in_order(schedule):
    schedule.offset_table = {3: 1, 1: 2}
    assert list(call(family(SlaveRequests, schedule=schedule).get_all_delay_offset).body["offsetTable"]) == [1, 3]


@pytest.fixture
def timer(store, parts):
    return Timer(store, parts.clock).service


def test_recorded_answers_have_the_same_fields():
    found = [decode_timer_checkpoint(theirs.body) for _, theirs in recorded(60)]

    assert found
    assert all(checkpoint.last_read_time_ms > 0 for checkpoint in found)


def test_only_what_is_delivered_before_both(timer):
    timer.progress.begin([(1_000, 9), (5_000, 4)], 9, 1_000, 10_000)

    answer = call(family(SlaveRequests, timer=timer).get_timer_check_point)

    assert decode_timer_checkpoint(answer.body) == TimerCheckpoint(1_000, 0, 9, 9)


def test_a_timer_without_messages(timer):
    assert call(family(SlaveRequests, timer=timer).get_timer_check_point).body == bytes(56)


def test_recorded_tables_get_timer_metrics(timer, tmp_path):
    metrics = TimerMetrics(tmp_path / "timermetrics")
    counts = set()
    for _, theirs in recorded(61):
        metrics.decode(fastjson.dumps(theirs.body))
        assert call(family(SlaveRequests, timer=timer, timer_metrics=metrics).get_timer_metrics) == theirs
        counts.update(theirs.body["timingCount"])
    assert "GoldenTopic" in counts


async def test_a_master_answers_its_own_counts(store, parts, tmp_path):
    timer = await Timer(store, parts.clock).load()
    metrics = TimerMetrics(tmp_path / "timermetrics")
    metrics.decode(b'{"timingCount":{"Old":{"count":5,"timeStamp":1}}}')
    timer.put(TIMER_DELAY_SEC=5)
    await timer.run()

    answer = call(family(SlaveRequests, timer=timer.service, timer_metrics=metrics).get_timer_metrics)

    now = parts.clock.time_ms()
    assert answer.body == {
        "dataVersion": {"counter": 2, "stateVersion": 0, "timestamp": now},
        "timingCount": {"T": {"count": 1, "timeStamp": now}},
    }


def test_recorded_tables_get_all_message_request_mode(tmp_path):
    modes = MessageRequestModeManager(tmp_path / "messageRequestMode.json", BrokerConfig())
    answers = list(recorded(402))
    for _, theirs in answers:
        modes.decode(fastjson.dumps(theirs.body))
        assert call(family(SlaveRequests, request_modes=modes).get_all_message_request_mode) == theirs
    assert answers


def test_modes_by_topic_and_group(tmp_path):
    modes = MessageRequestModeManager(tmp_path / "messageRequestMode.json", BrokerConfig())
    text = b'{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","popShareQueueNum":2,"topic":"T"}}}}'
    modes.decode(text)

    assert call(family(SlaveRequests, request_modes=modes).get_all_message_request_mode).body == fastjson.loads(text)


OWN = ExchangeHAInfoResponseHeader("10.0.0.1:10912", 0, "10.0.0.1:10911")


async def ask(own: ExchangeHAInfoResponseHeader | None, ha_address: str | None) -> tuple[Command, list[Master]]:
    """Return the answer of a broker, and the masters that it handed over to."""
    masters: list[Master] = []

    async def hand_over(master: Master) -> None:
        masters.append(master)

    header = ExchangeHAInfoRequestHeader(ha_address, 0, "10.0.0.9:10911" if ha_address else None)
    command = request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
    slaves = family(SlaveRequests, own_ha_info=lambda: own, hand_over=hand_over)
    return await slaves.exchange_broker_ha_info(FakeConnection(), command), masters


async def test_a_slave_takes_the_addresses_of_its_master():
    answer, masters = await ask(None, "10.0.0.9:10912")
    assert (answer.code, masters) == (ResponseCode.SUCCESS, [Master("10.0.0.9:10911", "10.0.0.9:10912")])


async def test_a_master_answers_its_own():
    answer, masters = await ask(OWN, None)
    assert (answer.code, answer.header, masters) == (ResponseCode.SUCCESS, OWN, [])


async def test_a_master_follows_no_other():
    with pytest.raises(BrokerResponseError, match="is a master itself") as error:
        await ask(OWN, "10.0.0.9:10912")
    assert error.value.code == ResponseCode.INVALID_PARAMETER


async def test_a_slave_has_no_addresses_to_answer():
    answer, masters = await ask(None, None)
    assert (answer.code, answer.header, masters) == (ResponseCode.SUCCESS, None, [])


def test_a_notice_makes_the_slave_ask():
    rounds: list[int] = []
    processor = family(SlaveRequests, look_for_members=lambda: rounds.append(1))

    answer = processor.notify_min_broker_id_change(FakeConnection(), request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE))

    assert (answer.code, rounds) == (ResponseCode.SUCCESS, [1])


def test_the_answer_is_the_recorded_one():
    exchange = next(each for each in answers_to(RequestCode.GET_BROKER_HA_STATUS) if each.response)
    assert exchange.response is not None
    recorded = exchange.response.command().body
    info = HARuntimeInfo.decode(recorded)
    [slave] = info.ha_connection_info
    assert (slave.diff, slave.in_sync) == (0, True)

    made = HARuntimeInfo(
        True,
        info.master_commit_log_max_offset,
        1,
        [HAConnectionRuntimeInfo(slave.addr, slave.slave_ack_offset, 0, True, 0, slave.transfer_from_where)],
    )
    answer = family(SlaveRequests, ha_status=lambda: made).get_broker_ha_status(
        FakeConnection(), request(RequestCode.GET_BROKER_HA_STATUS)
    )

    assert bytes(answer.body) == bytes(recorded)

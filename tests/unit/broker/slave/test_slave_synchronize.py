import logging

import pytest

from rocketbroker.broker.out.master_address import Master
from rocketbroker.broker.slave import slave_synchronize
from rocketbroker.codec.remoting.bodies.subscription_group import SubscriptionGroupConfig
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint
from tests.support.waiting import until

TABLES = {
    RequestCode.GET_ALL_TOPIC_CONFIG: "topics",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "consumer groups",
    RequestCode.GET_ALL_CONSUMER_OFFSET: "consumer offsets",
    RequestCode.GET_ALL_DELAY_OFFSET: "delay offsets",
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: "message request modes",
    RequestCode.GET_TIMER_CHECK_POINT: "timer checkpoint",
    RequestCode.GET_TIMER_METRICS: "timer metrics",
}


@pytest.fixture
def filled(master):
    """The master with a topic, a group and an offset."""
    master.topics.update(TopicConfig("T", 4, 4))
    master.groups.find("G")
    master.groups.update_forbidden("G", "T", 0, forbid=True)
    master.offsets.commit("G", "T", 0, 7)
    return master


def state(slave):
    """Return all that a slave follows."""
    return (
        dict(slave.topics.topics),
        dict(slave.groups.groups),
        dict(slave.groups.forbidden_table),
        {key: dict(queues) for key, queues in slave.offsets.table.items()},
        dict(slave.schedule.offset_table),
        slave.timer.progress.delivered,
        tuple(table.content for table in slave.copied),
    )


async def test_topics_groups_and_offsets_follow_with_their_versions(slave, filled):
    await slave.sync.sync_all()

    assert slave.topics.topics == filled.topics.topics
    assert slave.topics.data_version == filled.topics.data_version
    assert slave.groups.groups == filled.groups.groups
    assert slave.groups.forbidden_table == {"G": {"T": 1}}
    assert slave.groups.data_version == filled.groups.data_version
    assert slave.offsets.table == {"T@G": {0: 7}}
    assert slave.address.answers


async def test_topics_with_the_names_of_broker_and_cluster_are_valid(slave, filled):
    slave.topics.system_topics |= {"mq1.example.com"}
    filled.topics.update(TopicConfig("mq1.example.com", 1, 1))
    filled.offsets.commit("G", "mq1.example.com", 0, 7)

    await slave.sync.sync_all()

    assert "T" in slave.topics.topics
    assert slave.offsets.query("G", "mq1.example.com", 0) == 7


async def test_what_the_master_deletes_goes_with_its_offsets(slave, filled):
    filled.topics.update(TopicConfig("Stays", 4, 4))
    await slave.sync.sync_all()
    filled.topics.delete("T")
    filled.groups.delete("G")
    filled.offsets.remove_topic("T")

    await slave.sync.sync_all()

    assert "Stays" in slave.topics.topics
    assert "T" not in slave.topics.topics
    assert "G" not in slave.groups.groups
    assert slave.offsets.table == {}


async def test_an_empty_master_wipes_nothing(slave, filled, caplog):
    await slave.sync.sync_all()
    before = state(slave)
    del filled.topics.topics["T"]
    del filled.groups.groups["G"]
    filled.offsets.table.clear()
    filled.topics.data_version.counter = filled.groups.data_version.counter = 0

    await slave.sync.sync_all()
    await slave.sync.sync_all()

    assert state(slave) == before
    assert caplog.text.count("the master lacks 1 of this slave's topics, such as T") == 1
    filled.topics.update(TopicConfig("New", 4, 4))
    await slave.sync.sync_all()
    assert {"T", "New"} <= slave.topics.topics.keys()
    assert slave.topics.data_version.state_version > filled.topics.data_version.state_version, "for a restart"


async def test_a_restarted_slave_keeps_what_an_empty_master_lacks(slave, master):
    slave.topics.update(TopicConfig("T", 4, 4))
    slave.groups.find("G")
    master.topics.data_version.counter = master.groups.data_version.counter = 100

    await slave.sync.sync_all()

    assert "T" in slave.topics.topics
    assert "G" in slave.groups.groups


async def test_a_restarted_slave_deletes_what_the_master_deleted_meanwhile(slave, filled):
    for name in ("Deleted", "HasMessages", "T"):
        slave.topics.update(TopicConfig(name, 4, 4))
    slave.stored_topics |= {"HasMessages", "T"}
    filled.topics.data_version.counter = 100

    await slave.sync.sync_all()

    assert "Deleted" not in slave.topics.topics
    assert "HasMessages" in slave.topics.topics, "the master may have lost it"


async def test_long_tables_come_in_pages(slave, filled):
    for number in range(4_100):
        filled.topics.update(TopicConfig(f"T{number}", 1, 1))
        filled.groups.update(SubscriptionGroupConfig(f"G{number}"))

    await slave.sync.sync_all()

    assert slave.topics.topics == filled.topics.topics
    assert slave.groups.groups == filled.groups.groups


async def test_progress_is_taken_over_one_round_late(slave, master):
    master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b'{"offsetTable":{1:5}}'
    delivered = TimerCheckpoint(slave.clock.time_ms(), 0, 9, 9)
    master.bodies[RequestCode.GET_TIMER_CHECK_POINT] = delivered.encode()
    await slave.sync.sync_all()
    assert (slave.schedule.offset_table, slave.timer.progress.delivered) == ({}, ())

    master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b'{"offsetTable":{1:6}}'
    await slave.sync.sync_all()

    assert slave.schedule.offset_table == {1: 5}
    assert slave.timer.progress.delivered == ((delivered.last_read_time_ms, 9),)


async def test_an_acting_master_keeps_its_own_progress(slave, master):
    master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b'{"offsetTable":{1:5}}'
    master.bodies[RequestCode.GET_TIMER_CHECK_POINT] = TimerCheckpoint(slave.clock.time_ms(), 0, 9, 9).encode()
    slave.is_acting = True

    for _ in range(2):
        await slave.sync.sync_all()

    assert (slave.schedule.offset_table, slave.timer.progress.delivered) == ({}, ())


async def test_tables_for_other_brokers_are_kept_as_they_are(slave, master):
    modes = b'{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","popShareQueueNum":2,"topic":"T"}}}}'
    master.bodies[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = modes
    master.bodies[RequestCode.GET_TIMER_METRICS] = b'{"timingCount":{"T":{"count":3,"timeStamp":5}}}'

    await slave.sync.sync_all()

    assert slave.copied.message_request_modes.content.encode() == modes
    assert slave.copied.timer_metrics.content.timing_count["T"].count == 3

    master.bodies[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = b'{"messageRequestModeMap":{}}'
    master.bodies[RequestCode.GET_TIMER_METRICS] = b'{"timingCount":{}}'
    await slave.sync.sync_all()

    assert slave.copied.message_request_modes.content.encode() == modes, "a master that lost its tables"
    assert slave.copied.timer_metrics.content.timing_count["T"].count == 3


@pytest.mark.parametrize(
    "body",
    [b"", b"garbage", b"{", b"[]", b'{"offsetTable":3}', b"\x00" * 55, b"\xff" * 56, b'{"topicConfigTable":{"T":1}}'],
    ids=range(8),
)
@pytest.mark.parametrize("code", TABLES)
async def test_a_broken_answer_changes_nothing(slave, filled, caplog, code, body):
    await slave.sync.sync_all()
    before = state(slave)
    filled.bodies[code] = body

    await slave.sync.sync_all()
    await slave.sync.sync_all()

    assert state(slave) == before
    assert caplog.text.count(f"the {TABLES[code]} of the master are not taken over") <= 1


WRONG = {
    "no topic": (RequestCode.GET_ALL_TOPIC_CONFIG, b'{"topicConfigTable":{}}'),
    "future": (RequestCode.GET_TIMER_CHECK_POINT, TimerCheckpoint(2**62, 0, 9, 9).encode()),
    "past": (RequestCode.GET_TIMER_CHECK_POINT, TimerCheckpoint(-1, 0, 9, 9).encode()),
    "timer offset": (RequestCode.GET_TIMER_CHECK_POINT, TimerCheckpoint(5, 0, -9, 9).encode()),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_wrong_value_spoils_the_whole_answer(slave, filled, caplog, case):
    code, body = WRONG[case]
    await slave.sync.sync_all()
    before = state(slave)
    filled.bodies[code] = body

    await slave.sync.sync_all()
    await slave.sync.sync_all()

    assert state(slave) == before
    assert caplog.text.count(f"the {TABLES[code]} of the master are not taken over") == 1


TOPICS, GROUPS = RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
OFFSETS, LEVELS = RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET
T = '"T":{"topicName":"T","readQueueNums":4,"writeQueueNums":4}'
INVALID = {
    "path": (TOPICS, f'"../x":{{"topicName":"../x"}},{T}', "topic: ../x, contains illegal characters"),
    "other name": (TOPICS, '"T":{"topicName":"B"}', "topic 'T' has the name 'B'"),
    "queues": (TOPICS, '"T":{"topicName":"T","readQueueNums":-1}', "topic T has -1 read and 16 write queues"),
    "group": (GROUPS, '"a b":{"groupName":"a b"}', "group: a b, contains illegal characters"),
    "other group": (GROUPS, '"G":{"groupName":"a b"}', "group 'G' has the name 'a b'"),
    "key": (OFFSETS, '"T":{0:1}', "'T' is not a topic and a group"),
    "topic of a key": (OFFSETS, '"../x@G":{0:1}', "'../x@G' is not a topic and a group"),
    "offset": (OFFSETS, '"T@G":{0:-2}', "a queue or an offset of T@G is out of range"),
    "queue": (OFFSETS, '"T@G":{70000:2}', "a queue or an offset of T@G is out of range"),
    "level": (LEVELS, "0:1", "delay level 0 with offset 1"),
    "delay offset": (LEVELS, "1:-1", "delay level 1 with offset -1"),
}
VALID = {
    TOPICS: ("topicConfigTable", '"New":{"topicName":"New"}'),
    GROUPS: ("subscriptionGroupTable", '"New":{"groupName":"New"}'),
    OFFSETS: ("offsetTable", '"New@G":{0:5}'),
    LEVELS: ("offsetTable", "2:5"),
}


@pytest.mark.parametrize("case", INVALID)
async def test_an_invalid_entry_is_left_out_alone_and_logged_once(slave, filled, caplog, case):
    code, invalid, reason = INVALID[case]
    table, valid = VALID[code]
    slave.topics.update(TopicConfig("T", 4, 4))
    slave.offsets.commit("G", "T", 0, 7)
    await slave.sync.sync_all()
    before = state(slave)
    version = filled.topics.data_version.encode().decode()
    filled.bodies[code] = f'{{"dataVersion":{version},"{table}":{{{invalid},{valid}}}}}'.encode()

    await slave.sync.sync_all()
    await slave.sync.sync_all()

    assert caplog.text.count(f"invalid {TABLES[code]} of the master are left out: ") == 1
    assert reason in caplog.text
    after = state(slave)
    new = [table.pop(key) for table in (*after[:2], after[3], after[4]) for key in ("New", "New@G", 2) if key in table]
    assert len(new) == 1
    assert after == before


async def test_a_dead_master_is_reported_once_and_followed_again(slave, filled, caplog):
    caplog.set_level(logging.INFO)
    good = slave.address.master
    slave.address.registered("ns", Master("127.0.0.1:1x", ""))
    await slave.sync.sync_all()
    await slave.sync.sync_all()
    assert not slave.address.answers
    assert caplog.text.count("the master 127.0.0.1:1x does not answer") == 1

    slave.address.registered("ns", good)
    await slave.sync.sync_all()
    assert slave.address.answers
    assert f"the master {good.address} answers again" in caplog.text
    assert "T" in slave.topics.topics


async def test_nothing_follows_while_the_log_does_not(slave, filled, caplog):
    good = slave.address.master
    slave.other_log = "this slave is ahead of its master"

    await slave.sync.sync_all()
    await slave.sync.sync_all()

    assert "T" not in slave.topics.topics
    assert caplog.text.count("the tables are kept as they are: this slave is ahead of its master") == 1
    assert slave.address.answers
    slave.address.registered("ns", Master("127.0.0.1:1x", ""))
    await slave.sync.sync_all()
    assert not slave.address.answers, "consumers must not go to a dead master"
    slave.address.registered("ns", good)
    slave.other_log = ""
    await slave.sync.sync_all()
    assert "T" in slave.topics.topics


async def test_another_look_fetches_the_tables_at_once(slave, filled):
    slave.other_log = "not compared yet"
    await slave.sync.start()
    await until(lambda: slave.sync._logged)

    slave.other_log = ""
    slave.sync.look_again()

    await until(lambda: "T" in slave.topics.topics)


async def test_a_new_master_is_followed_at_once(slave, filled):
    good = slave.address.master
    slave.address.registered("ns", Master())
    await slave.sync.start()
    await until(lambda: slave.registrations)

    slave.address.registered("ns", good)

    await until(lambda: "T" in slave.topics.topics)


async def test_offsets_committed_here_return_to_the_master(slave, filled):
    await slave.sync.start()
    await until(lambda: slave.address.answers and slave.offsets.table)
    slave.offsets.commit("G", "T", 0, 20)
    slave.offsets.commit("G", "T", 1, 3)

    await slave.sync.sync_all()
    await slave.sync.sync_all()
    await until(lambda: len(filled.commits) == 2)
    assert slave.offsets.table == {"T@G": {0: 20, 1: 3}}
    await slave.sync.sync_all()

    assert filled.offsets.table == {"T@G": {0: 20, 1: 3}}
    assert slave.offsets.slave_commits == {}
    assert len(filled.commits) == 2


async def test_a_message_of_a_new_topic_fetches_the_tables_at_once(slave, master, monkeypatch):
    monkeypatch.setattr(slave_synchronize, "LOOK_S", 0.01)
    await slave.sync.start()
    await until(lambda: slave.topics.data_version == master.topics.data_version)
    master.topics.update(TopicConfig("New", 4, 4))

    slave.stored_topics.add("New")

    await until(lambda: "New" in slave.topics.topics)

import logging

import pytest

from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.slave import slave_synchronize
from rocketbroker.broker.slave.master_client import LogState
from rocketbroker.broker.slave.slave_synchronize import MasterNames, TimerMetrics
from rocketbroker.codec.remoting.bodies.offset import TimerMetric, TimerMetricsSerializeWrapper
from rocketbroker.codec.remoting.bodies.pop import (
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint
from rocketbroker.store.commitlog.put_message import Acknowledgement, PutMessageStatus
from rocketbroker.store.dispatch.reput_message_service import LastRecord
from tests.support.golden_store import files
from tests.support.stores import message
from tests.support.waiting import until


def test_a_table_is_written_when_it_differs(tmp_path):
    written: list[object] = []
    metrics = TimerMetrics(tmp_path / "timermetrics", written.append)
    content = TimerMetricsSerializeWrapper({"T": TimerMetric(3, 5)})

    metrics.follow(content)
    metrics.follow(TimerMetricsSerializeWrapper({"T": TimerMetric(3, 5)}))

    assert written == [metrics]
    assert metrics.content is content


def test_rocketmq_files_are_read(tmp_path):
    data = files("clean")["config/timermetrics"]
    (tmp_path / "timermetrics").write_bytes(data)
    metrics = TimerMetrics(tmp_path / "timermetrics")

    assert metrics.load()
    assert "StDelay" in metrics.content.timing_count
    assert len(metrics.encode()) == len(data)


def test_a_missing_file_is_an_empty_table(tmp_path):
    metrics = TimerMetrics(tmp_path / "timermetrics")

    assert not metrics.load()
    assert metrics.content.timing_count == {}


TABLES = {
    RequestCode.GET_ALL_TOPIC_CONFIG: "topics",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "consumer groups",
    RequestCode.GET_ALL_CONSUMER_OFFSET: "consumer offsets",
    RequestCode.GET_ALL_DELAY_OFFSET: "delay offsets",
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: "message request modes",
    RequestCode.GET_TIMER_CHECK_POINT: "timer checkpoint",
    RequestCode.GET_TIMER_METRICS: "timer metrics",
}
# Longer than any wait for what comes at once.
NEVER_S = 3600.0


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
        dict(slave.request_modes.table),
        slave.timer_metrics.content,
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
    filled.log = LogState("2", 0)
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


PROGRESS = {
    RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"T@G":{0:%d}}}',
    RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{1:%d}}',
}


class Copied:
    """A slave's log that has a prefix of its master's, message by message; the master's progress counts its messages.

    ``copied`` is the number of messages that the slave has.
    """

    def __init__(self, slave, master, store) -> None:
        self._slave, self._master, self._store = slave, master, store
        self.copied = 0
        self._ends = [0]

    def master_stores(self) -> None:
        """Let the master store a message, and make progress by it."""
        result = self._store.appender.put_message(message(b"%d" % len(self._ends)))
        self._store.appender.dispatch()
        begin, end = result.physical_offset, result.physical_offset + result.size
        self._ends.append(end)
        self._master.records[begin] = self._store.commit_log.record(begin)
        self._master.log = LogState(self._master.log.started, end)
        count = len(self._ends) - 1
        for code, body in PROGRESS.items():
            self._master.bodies[code] = body % count
        delivered = TimerCheckpoint(self._slave.clock.time_ms(), 0, count, count)
        self._master.bodies[RequestCode.GET_TIMER_CHECK_POINT] = delivered.encode()

    def slave_gets(self, count: int) -> None:
        """Let the slave have the first ``count`` messages."""
        self.copied = count
        begins = self._ends[: count + 1]
        self._slave.last_record = LastRecord(begins[-2], begins[-1] - begins[-2]) if count else None

    def taken_over(self) -> int:
        """Return the number of messages that the slave's progress counts, the same in each of its tables."""
        found: set[int] = {
            max(self._slave.offsets.query("G", "T", 0), 0),
            self._slave.schedule.offset_table.get(1, 0),
            self._slave.timer.progress.delivered[-1][1] if self._slave.timer.progress.delivered else 0,
        }
        assert len(found) == 1, found
        return found.pop()


@pytest.fixture
def logs(slave, master, store) -> Copied:
    """The logs of master and slave, without messages."""
    return Copied(slave, master, store)


@pytest.mark.proves("A log that copies another's", "progress of a master that the slave's log has not reached")
async def test_progress_waits_until_the_log_has_what_it_counts(slave, logs):
    for _ in range(3):
        logs.master_stores()
    for has in (0, 1, 2):
        logs.slave_gets(has)
        await slave.sync.sync_all()
        assert logs.taken_over() == 0

    logs.slave_gets(3)
    await slave.sync.sync_all()
    assert logs.taken_over() == 3


async def test_a_slave_that_is_always_behind_advances(slave, logs):
    for count in range(1, 10):
        logs.master_stores()
        logs.slave_gets(count - 1)
        await slave.sync.sync_all()
        assert count - 3 <= logs.taken_over() <= logs.copied
    assert len(slave.sync._gate._waiting) <= 2


async def test_progress_counts_nothing_that_a_master_stores_after_it_was_asked_for_its_log(slave, logs, master):
    logs.master_stores()
    logs.slave_gets(1)
    asked: list[int] = []

    def stores_first() -> None:
        # After the tables, which may count the message already.
        if len(asked) == 1:
            logs.master_stores()
        asked.append(1)

    master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b'{"offsetTable":{1:2}}'
    master.before_state = stores_first
    await slave.sync.sync_all()

    assert slave.schedule.offset_table == {}


@pytest.mark.proves("A log that copies another's", "progress of a master that the slave's log has not reached")
@pytest.mark.parametrize("when", ["after the tables", "before the log is there", "amid the comparison"])
async def test_progress_of_a_master_that_was_started_again_is_never_taken_over(slave, logs, master, when):
    """It may have lost the end of its log, and have stored other messages at the same offsets."""
    logs.master_stores()
    again = LogState("2", master.log.end)
    asked: list[int] = []

    def restart_after_tables() -> None:
        if asked:
            master.log = again
        asked.append(1)

    def restart_amid_comparison() -> None:
        master.log = again

    if when == "after the tables":
        master.before_state = restart_after_tables
    if when == "amid the comparison":
        master.before_record = restart_amid_comparison
    if when == "amid the comparison":
        logs.slave_gets(1)
    await slave.sync.sync_all()
    assert logs.taken_over() == 0
    master.log = again
    logs.slave_gets(1)
    await slave.sync._take_over_progress()
    assert logs.taken_over() == 0


async def test_progress_does_not_wait_behind_a_record_above_a_lowered_limit(slave, logs, store):
    logs.master_stores()
    logs.slave_gets(1)
    store.commit_log.longest_record = 10

    await slave.sync.sync_all()

    assert logs.taken_over() == 1


async def test_progress_is_that_of_the_same_log(slave, logs, master):
    logs.master_stores()
    logs.slave_gets(1)
    (offset,) = master.records
    record = master.records[offset]
    for other in (record[:-1] + b"?", b""):
        master.records[offset] = other
        await slave.sync.sync_all()
        assert logs.taken_over() == 0

    master.records[offset] = record
    await slave.sync.sync_all()
    assert logs.taken_over() == 1


async def test_a_log_that_cannot_be_read_covers_nothing(slave, logs, master, store):
    logs.master_stores()
    master.log = LogState("1", 0)
    for last_record in (None, LastRecord(store.commit_log.max_offset, 100)):
        slave.last_record = last_record
        await slave.sync.sync_all()
        assert logs.taken_over() == 0


async def test_progress_of_a_former_master_is_forgotten(slave, logs, master):
    logs.master_stores()
    await slave.sync.sync_all()
    slave.address.registered("ns", Master("127.0.0.1:1", ""))
    slave.address.registered("ns", Master(master.address, ""))

    logs.slave_gets(1)
    await slave.sync._take_over_progress()

    assert logs.taken_over() == 0
    await slave.sync.sync_all()
    assert logs.taken_over() == 1


async def test_progress_waits_for_the_own_disk(slave, logs, store, monkeypatch):
    logs.master_stores()
    logs.slave_gets(1)
    monkeypatch.setattr(store.flusher, "sync", failed_sync)
    await slave.sync.sync_all()
    assert logs.taken_over() == 0

    monkeypatch.undo()
    await slave.sync.sync_all()
    assert logs.taken_over() == 1
    assert store.flusher.flushed_offset == store.commit_log.max_offset


async def failed_sync() -> Acknowledgement:
    return Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "the disk is broken")


async def test_progress_is_taken_over_between_two_rounds(slave, logs, monkeypatch):
    monkeypatch.setattr(slave_synchronize, "INTERVAL_S", NEVER_S)
    monkeypatch.setattr(slave_synchronize, "LOOK_S", 0.01)
    logs.master_stores()
    await slave.sync.start()
    await until(lambda: slave.sync._gate._waiting)

    logs.slave_gets(1)

    await until(lambda: logs.taken_over() == 1)


async def test_what_waits_is_forgotten_by_an_acting_master(slave, logs):
    logs.master_stores()
    await slave.sync.sync_all()
    slave.is_acting = True
    await slave.sync.start()
    await until(lambda: slave.registrations)

    assert not slave.sync._gate._waiting


async def test_offsets_that_the_master_deleted_go(slave, filled):
    filled.offsets.commit("G", "T", 1, 3)
    filled.offsets.commit("H", "T", 0, 5)
    await slave.sync.sync_all()

    filled.offsets.remove_group("H")
    filled.offsets.table["T@G"] = {1: 1}
    await slave.sync.sync_all()

    assert slave.offsets.table == {"T@G": {1: 1}}


async def test_offsets_that_a_master_lost_with_its_last_commits_stay(slave, filled):
    await slave.sync.sync_all()
    filled.offsets.table.clear()
    filled.log = LogState("2", 0)
    await slave.sync.sync_all()
    assert slave.offsets.table == {"T@G": {0: 7}}

    await slave.sync.sync_all()
    assert slave.offsets.table == {"T@G": {0: 7}}


async def test_a_deleted_topic_takes_the_progress_that_waits_with_it(slave, filled):
    filled.topics.update(TopicConfig("Stays", 4, 4))
    await slave.sync.sync_all()
    filled.log = LogState("1", 100)
    await slave.sync.sync_all()
    filled.topics.delete("T")
    filled.offsets.remove_topic("T")
    filled.bodies[RequestCode.GET_BROKER_RUNTIME_INFO] = b"unreadable"
    await slave.sync.sync_all()
    del filled.bodies[RequestCode.GET_BROKER_RUNTIME_INFO]
    assert slave.offsets.table == {}
    assert not slave.sync._gate._waiting


async def test_an_acting_master_keeps_its_own_progress(slave, master):
    master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b'{"offsetTable":{1:5}}'
    master.bodies[RequestCode.GET_TIMER_CHECK_POINT] = TimerCheckpoint(slave.clock.time_ms(), 0, 9, 9).encode()
    slave.is_acting = True

    for _ in range(2):
        await slave.sync.sync_all()

    assert (slave.schedule.offset_table, slave.timer.progress.delivered) == ({}, ())


async def test_modes_and_counts_are_kept_from_a_master_that_lost_its_own(slave, master):
    modes = {"T": {"G": SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP, 2)}}
    master.bodies[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = MessageRequestModeSerializeWrapper(modes).encode()
    master.bodies[RequestCode.GET_TIMER_METRICS] = b'{"timingCount":{"T":{"count":3,"timeStamp":5}}}'

    await slave.sync.sync_all()

    assert slave.request_modes.table == modes
    assert slave.timer_metrics.content.timing_count["T"].count == 3

    master.bodies[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = b'{"messageRequestModeMap":{}}'
    master.bodies[RequestCode.GET_TIMER_METRICS] = b'{"timingCount":{}}'
    await slave.sync.sync_all()

    assert slave.request_modes.table == modes
    assert slave.timer_metrics.content.timing_count["T"].count == 3


async def test_modes_follow_without_those_of_invalid_names(slave, master, caplog):
    table = {name: {"G": SetMessageRequestModeRequestBody(name, "G", MessageRequestMode.POP)} for name in ("T", "../T")}
    table["U"] = {"bad group": SetMessageRequestModeRequestBody("U", "bad group")}
    slave.request_modes.update("Gone", "G", SetMessageRequestModeRequestBody("Gone", "G", MessageRequestMode.POP))
    master.bodies[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = MessageRequestModeSerializeWrapper(table).encode()

    await slave.sync.sync_all()

    assert slave.request_modes.table == {"T": table["T"]}
    assert "invalid message request modes of the master are left out: '../T' is not a topic, and 1 more" in caplog.text


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
    "key": (OFFSETS, '"T":{0:1},"T@G":{0:7}', "'T' is not a topic and a group"),
    "topic of a key": (OFFSETS, '"../x@G":{0:1},"T@G":{0:7}', "'../x@G' is not a topic and a group"),
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


async def test_another_look_fetches_the_tables_at_once(slave, filled, monkeypatch):
    monkeypatch.setattr(slave_synchronize, "INTERVAL_S", NEVER_S)
    slave.other_log = "not compared yet"
    await slave.sync.start()
    await until(lambda: slave.sync._logged)

    slave.other_log = ""
    slave.sync.look_again()

    await until(lambda: "T" in slave.topics.topics)


async def test_a_new_master_is_followed_at_once(slave, filled, monkeypatch):
    monkeypatch.setattr(slave_synchronize, "INTERVAL_S", NEVER_S)
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


async def test_a_message_of_a_new_topic_fetches_the_tables_at_once(slave, filled, monkeypatch):
    monkeypatch.setattr(slave_synchronize, "INTERVAL_S", NEVER_S)
    monkeypatch.setattr(slave_synchronize, "LOOK_S", 0.01)
    await slave.sync.start()
    # The last step of a round.
    await until(lambda: slave.offsets.table)
    filled.topics.update(TopicConfig("New", 4, 4))

    slave.stored_topics.add("New")

    await until(lambda: "New" in slave.topics.topics)


def at(counter, state=0):
    return DataVersion(1, counter, state)


def test_names_that_the_master_had_and_has_no_longer_are_gone():
    names = MasterNames("topics", {"BUILT_IN"})

    assert names.gone(["BUILT_IN"], at(0), ["BUILT_IN", "A", "B"], at(5)) == []
    assert names.gone(["BUILT_IN", "A", "B", "OWN"], at(5), ["A"], at(6)) == ["B"]
    assert names.version(at(5), at(6)) == at(6)


def test_nothing_is_gone_from_an_older_table():
    names = MasterNames("topics")
    names.gone([], at(0), ["A", "B"], at(5))

    assert names.gone(["A", "B"], at(5), ["B"], at(4)) == []
    assert names.version(at(5), at(4)) == at(5, 1)
    assert names.gone(["A", "B"], at(5, 1), ["B"], at(9)) == [], "kept until the master has it again"


def test_names_come_back_with_the_masters_table():
    names = MasterNames("topics")
    names.gone([], at(0), ["A"], at(5))
    names.gone(["A"], at(5), [], at(0))

    assert names.gone(["A"], at(5, 1), ["A"], at(1)) == []
    assert names.version(at(5, 1), at(1)) == at(1)


def test_a_restart_keeps_what_the_master_had_lost():
    assert MasterNames("topics").gone(["A", "B"], at(5, 1), ["B"], at(100)) == []


@pytest.mark.parametrize("names", [["BUILT_IN"], ["BUILT_IN", "C", "D"]])
def test_a_first_answer_without_any_own_name_deletes_nothing(names):
    assert MasterNames("topics", {"BUILT_IN"}).gone(["A", "BUILT_IN"], at(1), names, at(100)) == []


def test_a_name_in_use_is_not_deleted_by_a_first_answer():
    names = MasterNames("topics")

    assert names.gone(["A", "B", "C", "D"], at(1), ["C", "D"], at(100), {"A", "C"}) == ["B"]
    assert names.gone(["A", "C", "D"], at(100), ["D"], at(101), {"A", "C"}) == ["C"], "the master had it"

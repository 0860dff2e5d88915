"""Official Java clients send delayed messages of all kinds and recall some, over a broker that is killed meanwhile."""

from collections import Counter
from functools import partial

import pytest

from tests.support.clocked_broker import ClockedBroker, clocked_broker
from tests.support.java import Java
from tests.support.java_lines import check_content, got, rows
from tests.support.java_process import JavaProcess
from tests.support.our_servers import Cluster, OurServers, wait_serving

pytestmark = pytest.mark.java

TOPIC = "Timers"
COUNT = 40
RECALL_EACH = 8
PRECISION_MS = 1000
# For a machine with other work: the precision is shown with a clock of the test's own (tests/unit/broker/timer).
SLACK_MS = 30_000
HOUR_MS = 3_600_000
SETTINGS: dict[str, str | int] = {"recallMessageEnable": "true"}


@pytest.mark.proves(
    "Delayed messages",
    "timer messages (`TIMER_DELIVER_MS`, `TIMER_DELAY_SEC`, `TIMER_DELAY_MS`) at any time up to "
    "`timerMaxDelaySec`, over a broker that is killed",
)
@pytest.mark.proves("Delayed messages", "timer messages recalled")
def test_timer_messages_are_neither_early_nor_lost_nor_delivered_after_recall(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv()
    broker = our_servers.launch_broker(namesrv.address, None, SETTINGS)
    wait_serving(broker, namesrv.address)
    cluster = Cluster(namesrv, broker)
    for topic in (TOPIC, "Hello"):
        cluster.make_topic(topic)
    consumer = java.start("Push", f"namesrv={cluster.address}", f"topic={TOPIC}", "group=CG_Timers", "heartbeat=500")
    consumer.wait_for("QUEUES\t0,1,2,3")
    producer = java.start(
        "Timers",
        f"namesrv={cluster.address}",
        f"topic={TOPIC}",
        f"count={COUNT}",
        f"recallEach={RECALL_EACH}",
        "firstMillis=12000",  # recalls come in time on a busy machine
        "stepMillis=100",
    )
    producer.wait_for("DONE")
    broker.kill()
    killed = len(got(consumer.text()))
    again = our_servers.launch_broker(namesrv.address, broker.store, SETTINGS, broker.port)
    wait_serving(again, namesrv.address)

    output = producer.text()
    sent = {int(n): (msg_id, int(due)) for n, msg_id, status, due in rows(output, "SENT") if status == "SEND_OK"}
    assert sent.keys() == set(range(COUNT))
    recalled = set(range(0, COUNT, RECALL_EACH))
    assert {int(n): msg_id for n, msg_id in rows(output, "RECALLED")} == {n: sent[n][0] for n in recalled}
    assert rows(output, "REFUSED") == [["far", "13"], ["topic", "604"], ["passed", "604"]]
    wanted = sent.keys() - recalled
    consumer.wait_until(lambda: {each.n for each in got(consumer.text())} >= wanted, 60, "get all that was sent")
    # One more comes at the end, so that none that was recalled can be on its way still.
    last = java.run(
        "Timers", f"namesrv={cluster.address}", f"topic={TOPIC}", "count=2", "firstMillis=6000", "recallEach=9999"
    )
    assert "DONE" in last.stdout
    consumer.wait_until(lambda: len([each for each in got(consumer.text()) if each.n == 1]) > 1, 60, "get the last one")

    messages = got(consumer.text())
    check_content(messages)
    first = [each for each in messages if each.msg_id in {msg_id for msg_id, _ in sent.values()}]
    assert {each.n for each in first} == wanted
    restarted_ms = min((each.stored for each in first[killed:]), default=0)
    for each in first:
        due = sent[each.n][1]
        assert each.received >= each.stored >= due, f"early: {each}"
        assert each.stored <= max(due + PRECISION_MS, restarted_ms) + SLACK_MS, f"late: {each}"
    # What had come before the kill may come once more.
    twice = {n for n, times in Counter(each.n for each in first).items() if times > 1}
    assert twice <= {each.n for each in first[:killed]}


def days_broker(servers: OurServers, namesrv: str, before: ClockedBroker | None = None, *clock: str) -> ClockedBroker:
    """A broker whose clock is set, on the store and the port of the one before."""
    store, port = (before.store, before.port) if before else (None, 0)
    return clocked_broker(servers, namesrv, store, port=port, clock=clock, recallMessageEnable="true")


def has_come(consumer: JavaProcess, numbers: set[int]) -> bool:
    return {each.n for each in got(consumer.text())} >= numbers


@pytest.mark.proves(
    "Delayed messages",
    "messages that wait for days are stored again on the way, and the CommitLog is not cleaned under them",
)
def test_timers_of_days_survive_a_stop_a_kill_and_a_clock_step_back(java: Java, our_servers: OurServers):
    """One message an hour, up to three days ahead; the broker's clock is set, the clients know nothing of it."""
    hours, recall_each = 70, 10
    namesrv = our_servers.namesrv()
    broker = days_broker(our_servers, namesrv.address)
    Cluster(namesrv, broker).make_topic(TOPIC)
    consumer = java.start("Push", f"namesrv={namesrv.address}", f"topic={TOPIC}", "group=CG_Days", "heartbeat=500")
    consumer.wait_for("QUEUES\t0,1,2,3")
    sends = [f"namesrv={namesrv.address}", f"topic={TOPIC}", f"count={hours}", f"recallEach={recall_each}"]
    output = java.run("Timers", *sends, f"firstMillis={HOUR_MS}", f"stepMillis={HOUR_MS}").stdout
    due = {int(n): int(at) for n, _, status, at in rows(output, "SENT") if status == "SEND_OK"}
    assert due.keys() == set(range(hours))
    wanted = due.keys() - set(range(0, hours, recall_each))

    stepped_s, before_kill = 0, 0
    for step_h in (1, 9, 20, -3, 15, 29, 4):
        stepped_s += step_h * 3600
        now = broker.set_clock(f"step {step_h * 3600}")
        passed = {n for n in wanted if due[n] + PRECISION_MS <= now}
        consumer.wait_until(partial(has_come, consumer, passed), 60, f"get the {len(passed)} that are due")
        if step_h == 20:
            assert broker.stop() == 0
        elif step_h == 15:
            before_kill = len(got(consumer.text()))
            broker.kill()
        if step_h in {20, 15}:
            broker = days_broker(our_servers, namesrv.address, broker, f"step {stepped_s}")

    messages = got(consumer.text())
    check_content(messages)
    assert {each.n for each in messages} == wanted
    assert all(each.stored >= due[each.n] for each in messages), "early"
    times = Counter(each.n for each in messages)
    assert {n for n in times if times[n] > 1} <= {each.n for each in messages[:before_kill]}

"""Batches of official Java clients: message by message, and as one record in topics with ``queue.type=BatchCQ``."""

import shutil
from pathlib import Path

import pytest

from rocketbroker.audit.store_audit import audit, with_sizes_of_files
from rocketbroker.common.config import MessageStoreConfig
from tests.support.java import Java
from tests.support.java_lines import Got, Sent, check_content, check_contiguous, check_places, got, rows, sent
from tests.support.java_process import JavaServer
from tests.support.our_servers import OurServers, make_topic

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

TOPIC = "Batches"
QUEUES = 2
# Small files, so that they roll.
SIZES: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 262_144,
    "mapperFileSizeBatchConsumeQueue": 46 * 20,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1_000,
}
NUMBER = 700
PLAN = "batch:640:2,sync:60:2"


def write(java: Java, namesrv: str, first: int = 0, plan: str = PLAN) -> list[Sent]:
    """Batches of up to 32 messages, and single ones; each batch was told to be one record."""
    done = java.run("Produce", f"namesrv={namesrv}", f"topic={TOPIC}", f"plan={plan}", f"first={first}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    acknowledged = sent(done.stdout)
    assert {each.status for each in acknowledged} == {"SEND_OK"}
    assert sum(int(row[0]) for row in rows(done.stdout, "INNER")) == sum(
        int(step.split(":")[1]) for step in plan.split(",") if step.startswith("batch")
    )
    return acknowledged


def read(java: Java, namesrv: str, group: str, count: int, *options: str) -> list[Got]:
    given = (f"namesrv={namesrv}", f"topic={TOPIC}", f"group={group}", f"stopAfter={count}", *options)
    done = java.run("Push", *given)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return sorted(got(done.stdout), key=lambda each: (each.queue_id, each.queue_offset))


def read_all(java: Java, namesrv: str, group: str, acknowledged: list[Sent]) -> None:
    messages = read(java, namesrv, group, len(acknowledged))
    assert sorted(each.n for each in messages) == sorted(each.n for each in acknowledged)
    check_content(messages)
    check_contiguous(messages)
    check_places(messages, acknowledged)


def check_store(store: Path) -> None:
    report = audit(with_sizes_of_files(MessageStoreConfig(store_path_root_dir=str(store))))
    assert [str(finding) for finding in report.findings] == []


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "topics of batch consume queues (`queue.type=BatchCQ`): a batch is one record, which clients take "
    "apart; kept over stops, kills and lost folders, and by Apache's broker in turn",
)
def test_batches_are_kept_over_stops_kills_and_lost_folders(java: Java, our_servers: OurServers, tmp_path: Path):
    namesrv, store = our_servers.namesrv().address, tmp_path / "store"
    broker = our_servers.broker(namesrv, store, **SIZES)
    make_topic(broker.address, namesrv, TOPIC, QUEUES, queue_type="BatchCQ")
    acknowledged = write(java, namesrv)
    read_all(java, namesrv, "CG_First", acknowledged)
    broker.stop()
    check_store(store)
    assert len(list((store / "batchconsumequeue" / TOPIC / "0").iterdir())) > 1, "the queue has rolled"
    assert not (store / "consumequeue" / TOPIC).exists()

    broker = our_servers.broker(namesrv, store, **SIZES)
    more = write(java, namesrv, NUMBER)
    messages = read(java, namesrv, "CG_First", len(more))
    assert sorted(each.n for each in messages) == sorted(each.n for each in more), "the group goes on where it was"
    acknowledged += more
    broker.kill()

    broker = our_servers.broker(namesrv, store, **SIZES)
    read_all(java, namesrv, "CG_Second", acknowledged)
    broker.kill()
    shutil.rmtree(store / "batchconsumequeue")

    broker = our_servers.broker(namesrv, store, **SIZES)
    acknowledged += write(java, namesrv, 2 * NUMBER)
    read_all(java, namesrv, "CG_Third", acknowledged)
    broker.stop()
    check_store(store)


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "a message of such a batch that a consumer fails at comes again by itself",
)
def test_a_failed_message_of_a_batch_is_redelivered_alone(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv().address
    broker = our_servers.broker(namesrv, messageDelayLevel="1s 1s 1s 1s")
    make_topic(broker.address, namesrv, TOPIC, 1, queue_type="BatchCQ")
    write(java, namesrv, plan="batch:8:1")
    messages = read(java, namesrv, "CG_Again", 16, "failures=1")
    assert sorted((each.n, each.reconsume_times > 0) for each in messages) == [
        (n, again) for n in range(8) for again in (False, True)
    ]
    assert our_servers.errors() == []


def test_messages_of_a_batch_reach_those_who_subscribe_to_their_tag(
    java: Java, our_servers: OurServers, tmp_path: Path
):
    namesrv, store = our_servers.namesrv().address, tmp_path / "store"
    broker = our_servers.broker(namesrv, store, **SIZES)
    make_topic(broker.address, namesrv, TOPIC, 1)
    # Numbers of one length: the messages of a batch differ in unique id, tag and number, the latter two behind the id.
    options = "plan=batch:40:1", "first=10", "batchSize=2", "bare=true", "tags=TagA,TagB"
    done = java.run("Produce", f"namesrv={namesrv}", f"topic={TOPIC}", *options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert [each.status for each in sent(done.stdout)] == ["SEND_OK"] * 40

    messages = read(java, namesrv, "CG_TagB", 20, "expression=TagB")

    assert [(each.n, each.tags) for each in messages] == [(n, "TagB") for n in range(11, 50, 2)]
    broker.stop()
    check_store(store)


# Each run takes over plain messages (test_store_take_over.py); formats of batches change rarely.
@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "topics of batch consume queues (`queue.type=BatchCQ`): a batch is one record, which clients take "
    "apart; kept over stops, kills and lost folders, and by Apache's broker in turn",
)
@pytest.mark.soak
@pytest.mark.parametrize("writer", ["ours", "apache"])
def test_each_broker_serves_the_store_of_the_other(java: Java, our_servers: OurServers, tmp_path: Path, writer: str):
    namesrv, store = our_servers.namesrv().address, tmp_path / "store"

    def start(ours: bool) -> JavaServer:
        return our_servers.broker(namesrv, store, **SIZES) if ours else java.broker(namesrv, store, **SIZES)

    first = start(writer == "ours")
    make_topic(first.address, namesrv, TOPIC, QUEUES, queue_type="BatchCQ")
    acknowledged = write(java, namesrv)
    first.stop()
    check_store(store)

    second = start(writer != "ours")
    read_all(java, namesrv, "CG_Second", acknowledged)
    acknowledged += write(java, namesrv, NUMBER)
    second.stop()
    check_store(store)

    last = start(writer == "ours")
    read_all(java, namesrv, "CG_Third", acknowledged)
    last.stop()
    assert our_servers.errors() == []

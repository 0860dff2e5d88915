"""Apache's broker serves a store that ours wrote, and ours one that Apache's wrote."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.java import Java
from tests.support.java_lines import Sent, check_content, check_contiguous, check_places, got, rows, sent
from tests.support.java_process import JavaServer
from tests.support.our_servers import OurServers, make_topic
from tests.support.pop_moves import ENDS, check_rest, committed, pop_some
from tests.support.raw_client import RawClient
from tests.support.raw_requests import send_fields

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

# Small files, so that commit log, consume queues and index all roll.
SIZES: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 6_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1_000,
}
QUEUES = 3
NUMBER = 1_000
PLAN = "sync:500:4,batch:500:1"
RESET_TO = 3

StartBroker = Callable[[str], JavaServer]


def run(java: Java, driver: str, *options: str) -> str:
    done = java.run(driver, *options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


def write(java: Java, namesrv: str, broker: JavaServer, plan: str, first: int) -> list[Sent]:
    options = (f"namesrv={namesrv}", "topic=TakeOver", f"plan={plan}", f"first={first}")
    acknowledged = sent(run(java, "Produce", *options))
    assert {each.status for each in acknowledged} == {"SEND_OK"}
    return acknowledged


def read(java: Java, namesrv: str, group: str, acknowledged: list[Sent]) -> str:
    """Each message is where its producer was told, whole, and found by its tag, its key and its id."""
    wanted = [acknowledged[0], acknowledged[len(acknowledged) // 2], acknowledged[-1]]
    numbers = ",".join(str(each.n) for each in wanted)
    ids = ",".join(each.msg_id for each in wanted)
    options = (f"group={group}", "suspend=1000", "also=B", f"numbers={numbers}", f"ids={ids}")
    output = run(java, "Pull", f"namesrv={namesrv}", "topic=TakeOver", *options)
    messages = got(output)
    check_content(messages)
    check_contiguous(messages)
    check_places(messages, acknowledged)
    assert [row[0] for row in rows(output, "QUEUE")] == [str(queue) for queue in range(QUEUES)]
    with_tag = got(output, "ALSO")
    assert sorted(each.n for each in with_tag) == sorted(each.n for each in acknowledged if each.n % 3 == 1)
    for word in ("KEY", "ID"):
        found = got(output, word)
        check_content(found)
        check_places(found, wanted)
    return output


def reset(broker: JavaServer) -> None:
    """Reset a group that has no clients to the end of a queue, beyond three messages: without an offset it is at 0."""
    with RawClient(broker.address) as client:
        for _ in range(RESET_TO):
            assert client.ask(310, send_fields("Reset"), b"body").code == 0
        assert client.ask(200, body=b'{"groupName":"CG_Reset"}').code == 0
        place = {"group": "CG_Reset", "topic": "Reset", "timestamp": -1, "isForce": True}
        assert client.ask(222, place).code == 0
    check_reset(broker)


def check_reset(broker: JavaServer) -> None:
    with RawClient(broker.address) as client:
        committed = client.ask(14, {"consumerGroup": "CG_Reset", "topic": "Reset", "queueId": 0})
    assert committed.fields == {"offset": str(RESET_TO)}


def take_over(java: Java, namesrv: str, store: Path, first: StartBroker, second: StartBroker) -> None:
    """One broker writes, the other serves and writes on, and the first serves it all."""
    writer = first(namesrv)
    make_topic(writer.address, namesrv, "TakeOver", QUEUES)
    make_topic(writer.address, namesrv, "Reset", 1)
    reset(writer)
    acknowledged = write(java, namesrv, writer, PLAN, 0)
    read(java, namesrv, "CG_First", acknowledged)
    writer.stop()
    assert not (store / "abort").exists()
    assert len(list((store / "commitlog").iterdir())) > 1, "the commit log has rolled"
    assert len(list((store / "consumequeue" / "TakeOver" / "0").iterdir())) > 1, "the consume queue has rolled"
    assert len(list((store / "index").iterdir())) > 1, "the index has rolled"

    other = second(namesrv)
    check_reset(other)
    read(java, namesrv, "CG_Second", acknowledged)
    acknowledged += write(java, namesrv, other, "sync:200:2,batch:100:1", NUMBER)
    read(java, namesrv, "CG_Third", acknowledged)
    other.stop()
    assert not (store / "abort").exists(), "a broker that is stopped removes its abort file"

    check_reset(first(namesrv))
    output = read(java, namesrv, "CG_Third", acknowledged)
    # What a group had consumed stays consumed, whoever served it.
    ends = {row[0]: row[2] for row in rows(output, "QUEUE")}
    assert {row[0]: row[1] for row in rows(output, "COMMITTED-BEFORE")} == ends


# A store of ours is taken over by Apache's broker, and taken back with what that has added. The other way round starts
# Apache's broker twice; that ours serves a store of Apache's is also what the moves of popped messages show.
@pytest.mark.proves("Consumers", "a reset moves with a store to Apache's broker and back")
@pytest.mark.parametrize("writer", ["ours", pytest.param("apache", marks=pytest.mark.soak)])
def test_each_broker_serves_the_store_of_the_other(java: Java, our_servers: OurServers, tmp_path: Path, writer: str):
    namesrv = our_servers.namesrv().address
    store = tmp_path / "store"

    def ours(namesrv: str) -> JavaServer:
        return our_servers.broker(namesrv, store, **SIZES)

    def apache(namesrv: str) -> JavaServer:
        if writer == "ours":  # the file has a field then that Apache's broker does not know
            assert '"resetOffsetTable"' in (store / "config" / "consumerOffset.json").read_text()
        return java.broker(namesrv, store, **SIZES)

    if writer == "ours":
        take_over(java, namesrv, store, ours, apache)
    else:
        take_over(java, namesrv, store, apache, ours)
    assert our_servers.errors() == []


@pytest.mark.proves("POP and the gRPC port", "messages in flight move with a store to and from Apache's broker")
@pytest.mark.parametrize("ending", [pytest.param("stop", marks=pytest.mark.soak), "kill"])
@pytest.mark.parametrize(
    ("writer", "invisible_ms"),
    [
        # Apache's timer stores what is due at its start by several threads: an acknowledgement that comes before its
        # check point is lost. So all is due later.
        pytest.param("ours", 40_000, marks=pytest.mark.soak),
        ("apache", 5_000),
    ],
)
def test_popped_messages_move_with_the_store(
    java: Java, our_servers: OurServers, tmp_path: Path, writer: str, invisible_ms: int, ending: str
):
    """Those that are not acknowledged return, those that are do not. The group goes on where it was, in its mode."""
    namesrv = our_servers.namesrv().address
    starts = [our_servers.broker, java.broker] if writer == "ours" else [java.broker, our_servers.broker]
    first = starts[0](namesrv, tmp_path / "store", **SIZES)
    pop_some(first.address, invisible_ms)
    if ending == "stop":
        first.stop()
    else:
        first.wait_until(lambda: committed(tmp_path / "store") == ENDS, 60, "write the offsets")
        first.kill()

    second = starts[1](namesrv, tmp_path / "store", **SIZES)
    check_rest(second.address, invisible_ms, has_batch=ending == "stop")
    assert our_servers.errors() == []

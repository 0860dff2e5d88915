"""Official Java pull and lite-pull consumers against our servers, and messages looked for after a load."""

from collections.abc import Sequence

import pytest

from tests.support.java import Java
from tests.support.java_lines import Sent, check_content, check_contiguous, check_places, got, rows, sent
from tests.support.our_servers import Cluster, OurServers

pytestmark = pytest.mark.java

BOTH_CLIENTS = pytest.mark.parametrize("client", ["5.5.0", "4.9.8"])
CLIENTS = pytest.mark.parametrize("client", ["5.5.0", pytest.param("4.9.8", marks=pytest.mark.soak)])
NUMBER = 400
QUEUES = range(4)


def of(name: str, client: str) -> str:
    """Return a name of a topic or group for one client: the cluster is that of all tests here."""
    return f"{name}-{client.replace('.', '-')}"


def load(java: Java, cluster: Cluster, topic: str, client: str) -> list[Sent]:
    """NUMBER messages, as many in each queue."""
    cluster.make_topic(topic)
    plan = f"plan=selector:{NUMBER}:1"
    done = java.run("Produce", f"namesrv={cluster.address}", f"topic={topic}", plan, client=client)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return sent(done.stdout)


def consume(java: Java, cluster: Cluster, driver: str, topic: str, client: str, options: Sequence[str]) -> str:
    done = java.run(driver, f"namesrv={cluster.address}", f"topic={topic}", *options, client=client)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


@pytest.mark.proves("Consumers", "a consumer asks beyond the ends of its queue")
@BOTH_CLIENTS
def test_a_pull_consumer_reads_queue_by_queue(java: Java, shared_cluster: Cluster, client: str):
    acknowledged = load(java, shared_cluster, of("Pull", client), client)
    output = consume(
        java, shared_cluster, "Pull", of("Pull", client), client, [of("group=CG_Pull", client), "suspend=3000"]
    )

    messages = got(output)
    assert len(messages) == NUMBER
    check_content(messages)
    check_contiguous(messages)
    check_places(messages, acknowledged)
    size = NUMBER // len(QUEUES)
    first_stored = {queue: min(each.stored for each in messages if each.queue_id == queue) for queue in QUEUES}
    assert rows(output, "QUEUE") == [[str(q), "0", str(size), "0", str(first_stored[q])] for q in QUEUES]
    assert rows(output, "COMMITTED-BEFORE") == [[str(q), "0"] for q in QUEUES], "a new group starts at 0"
    # Above the maximum: the client is sent back to it.
    assert rows(output, "BEYOND") == [[str(q), "OFFSET_ILLEGAL", str(size), "0", str(size)] for q in QUEUES]
    assert rows(output, "COMMITTED") == [[str(q), str(size)] for q in QUEUES]
    ((status, held_ms),) = rows(output, "HELD")
    assert status == "NO_NEW_MSG"
    assert 3_000 <= int(held_ms) < 15_000, "held for the 3 s the client asked, not for the broker's own 15 s"


@pytest.mark.proves("Consumers", "LitePull: subscribe, assign, seek, pause, resume, commit")
@BOTH_CLIENTS
def test_a_lite_pull_consumer_subscribes_and_commits(java: Java, shared_cluster: Cluster, client: str):
    acknowledged = load(java, shared_cluster, of("Lite", client), client)
    output = consume(
        java, shared_cluster, "LitePull", of("Lite", client), client, [of("group=CG_Lite", client), f"count={NUMBER}"]
    )

    messages = got(output)
    assert len(messages) == NUMBER
    check_content(messages)
    check_contiguous(messages)
    check_places(messages, acknowledged)
    assert rows(output, "COMMITTED") == [[str(queue), "100"] for queue in QUEUES]


@pytest.mark.proves("Consumers", "LitePull: subscribe, assign, seek, pause, resume, commit")
@CLIENTS
def test_a_lite_pull_consumer_assigns_and_seeks(java: Java, shared_cluster: Cluster, client: str):
    acknowledged = load(java, shared_cluster, of("Seek", client), client)
    options = [of("group=CG_Seek", client), "mode=assign", "seek=60", f"count={NUMBER - 4 * 60}"]
    output = consume(java, shared_cluster, "LitePull", of("Seek", client), client, options)

    messages = got(output)
    check_content(messages)
    check_places(messages, [each for each in acknowledged if each.queue_offset >= 60])
    assert rows(output, "TIME") == [[str(queue), "100"] for queue in QUEUES], "now lies behind the last message"
    assert rows(output, "COMMITTED") == [[str(queue), "100"] for queue in QUEUES]


@pytest.mark.proves("Queries", "by key, unique id, offset id and from the queue, at once")
@CLIENTS
def test_the_first_request_finds_the_last_message_of_a_load(
    java: Java, shared_cluster: Cluster, shared_servers: OurServers, client: str
):
    output = consume(java, shared_cluster, "FindLast", of("Find", client), client, ["count=5000", "threads=8"])

    found = rows(output, "FOUND")
    assert [row[0] for row in found] == ["pull", "key", "unique id", "offset id"]
    for way, place, wanted, n in found:
        assert (place, n) == (wanted, "5000"), way
    assert shared_servers.errors() == []

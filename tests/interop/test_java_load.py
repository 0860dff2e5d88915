"""Official Java producers and push consumers against our servers: 10,000 messages in every way of sending."""

import pytest

from tests.support.java import Java
from tests.support.java_lines import check_content, check_contiguous, check_places, got, rows, sent
from tests.support.our_servers import Cluster, OurServers

pytestmark = pytest.mark.java

NUMBER = 10_000
ONEWAY = range(9_000, 10_000)


@pytest.mark.proves("Request and reply, batches, types of messages", "SEND_BATCH_MESSAGE")
@pytest.mark.parametrize("client", ["5.5.0", "4.9.8"])
def test_each_of_10_000_messages_is_received_exactly_once(
    java: Java, shared_cluster: Cluster, shared_servers: OurServers, client: str
):
    topic, group = (f"{word}-{client.replace('.', '-')}" for word in ("Load", "CG_Load"))
    shared_cluster.make_topic(topic)
    consumer = java.start(
        "Push",
        f"namesrv={shared_cluster.address}",
        f"topic={topic}",
        f"group={group}",
        f"stopAfter={NUMBER}",
        client=client,
    )
    consumer.wait_for("QUEUES\t0,1,2,3")
    plan = "sync:3000:8,async:3000:2,batch:2000:2,selector:1000:1,oneway:1000:1"
    done = java.run("Produce", f"namesrv={shared_cluster.address}", f"topic={topic}", f"plan={plan}", client=client)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    consumer.wait_for("DONE")

    messages, acknowledged = got(consumer.text()), sent(done.stdout)
    assert sorted(each.n for each in messages) == list(range(NUMBER))
    check_content(messages)
    check_contiguous(sorted(messages, key=lambda each: each.queue_offset))
    assert {each.status for each in acknowledged} == {"SEND_OK"}
    check_places([each for each in messages if each.n not in ONEWAY], acknowledged)
    assert shared_servers.errors() == []


@pytest.mark.proves("Order", "partition order by `MessageQueueSelector`, to an orderly consumer")
def test_a_partition_keeps_its_order_for_an_orderly_consumer(java: Java, shared_cluster: Cluster):
    shared_cluster.make_topic("Order")
    consumer = java.start(
        "Push",
        f"namesrv={shared_cluster.address}",
        "topic=Order",
        "group=CG_Order",
        "listener=orderly",
        "stopAfter=2000",
    )
    done = java.run(
        "Produce", f"namesrv={shared_cluster.address}", "topic=Order", "plan=selector:2000:1", client="4.9.8"
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    consumer.wait_for("DONE")

    messages = got(consumer.text())
    check_content(messages)
    check_contiguous(messages)
    for queue in range(4):
        numbers = [each.n for each in messages if each.queue_id == queue]
        assert numbers == list(range(queue, 2000, 4))


@pytest.mark.proves("Filters", "tags, `a \\|\\| b`, by their hash in the queue and exactly in the client")
def test_a_tag_expression_chooses_among_the_messages_of_an_auto_created_topic(java: Java, shared_cluster: Cluster):
    done = java.run(
        "Produce", f"namesrv={shared_cluster.address}", "topic=Tagged", "plan=sync:300:4", "tags=A,B,C,BB,AaBB"
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    consumer = java.start(
        "Push",
        f"namesrv={shared_cluster.address}",
        "topic=Tagged",
        "group=CG_Tagged",
        "expression=A || BB",
        "stopAfter=120",
        client="4.9.8",
    )
    consumer.wait_for("DONE")

    messages = got(consumer.text())
    assert sorted(each.n for each in messages) == [n for n in range(300) if n % 5 in (0, 3)]
    check_content(messages, "A,B,C,BB,AaBB")
    assert rows(consumer.text(), "QUEUES")[-1][0] == "0,1,2,3", "min(4 of the producer, 8 of the broker) queues"

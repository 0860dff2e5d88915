"""The official Java client filters by SQL92: it gets the right messages and no others, and the reason for an error."""

import json

import pytest

from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.java import Java
from tests.support.java_lines import check_content, got, rows
from tests.support.our_servers import Cluster, OurServers, wait_serving
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.java

FILTER = "n NOT BETWEEN 50 AND 99 AND text CONTAINS 'é' AND (TAGS IN ('A', 'B') OR n = 161) AND missing IS NULL"
COUNT = 200


def wanted(n: int) -> bool:
    """FILTER, for the messages of Messages.java."""
    return not 50 <= n <= 99 and (n % 3 in {0, 1} or n == 161)


def produce(java: Java, cluster: Cluster, topic: str, first: int) -> None:
    plan = f"plan=selector:{COUNT // 2}:1"
    done = java.run("Produce", f"namesrv={cluster.address}", f"topic={topic}", plan, f"first={first}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.proves("Filters", "SQL92: the right messages and no others, over a restart of the broker")
def test_a_filtered_consumer_gets_the_right_messages_also_over_a_restart(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv()
    cluster = Cluster(namesrv, our_servers.broker(namesrv.address, enablePropertyFilter="true"))
    cluster.make_topic("Filtered")
    produce(java, cluster, "Filtered", 0)
    before, after = [n for n in range(COUNT // 2) if wanted(n)], [n for n in range(COUNT // 2, COUNT) if wanted(n)]
    options = ["group=CG_Filter", f"sql={FILTER}", f"stopAfter={len(before + after)}", "heartbeat=1000"]
    names = [f"namesrv={cluster.address}", "topic=Filtered", "pollNameServer=1000"]

    consumer = java.start("Push", *names, *options, "linger=2000")
    for n in before:
        consumer.wait_for(f"GOT\t{n}\t")
    broker = cluster.broker
    assert broker.stop() == 0
    (table,) = json.loads((broker.store / "config" / "consumerFilter.json").read_text())["filterDataByTopic"].values()
    assert table["groupFilterData"]["CG_Filter"]["expression"] == FILTER
    again = our_servers.launch_broker(namesrv.address, broker.store, {"enablePropertyFilter": "true"}, port=broker.port)
    wait_serving(again, namesrv.address)
    produce(java, cluster, "Filtered", COUNT // 2)

    assert consumer.wait(90) == 0, consumer.text()[-3000:]
    messages = got(consumer.text())
    check_content(messages)
    assert sorted({each.n for each in messages}) == before + after
    # What was in flight at the restart may come twice.
    assert sorted(each.n for each in messages if each.n >= COUNT // 2) == after
    assert our_servers.errors() == []


WRONG = {
    "n > 30 AND": "Invalid MessageSelector. At character 11: the expression ends too early",
    "TAGS LIKE 'A'": "Invalid MessageSelector. At character 6: 'LIKE' is not allowed here",
    f"{'(' * 1000}n = 1{')' * 1000}": "the expression is nested more than 64 levels deep, which is the limit",
    f"n = 1{' OR n = 1' * 1000}": "the expression has 9,005 characters; the limit is 4,096",
}


@pytest.mark.proves(
    "Filters",
    "a bad expression is rejected with position and reason, one that is nested too deep as well",
)
@pytest.mark.proves("Filters", "without `enablePropertyFilter` SQL92 is rejected, and the setting is named")
def test_a_filter_is_rejected_while_disabled_and_when_invalid(java: Java, cluster: Cluster):
    cluster.make_topic("Refused")
    expressions = "\n".join(["n > 30", *WRONG, "n > 31"])
    names = [f"namesrv={cluster.address}", "topic=Refused", "group=CG_Refused", f"expressions={expressions}"]
    client = java.start("Filters", *names)

    refused = client.wait_for("REFUSED").split("\t")
    assert refused[1:3] == ["0", str(ResponseCode.SYSTEM_ERROR.value)]
    assert "The broker does not support consumer to filter message by SQL92" in refused[3]
    assert "enablePropertyFilter is false; set it to true" in refused[3]
    with RawClient(cluster.broker.address) as administration:
        assert administration.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"enablePropertyFilter=true\n").code == 0
    client.wait_for("DONE")

    last = str(len(WRONG) + 1)
    assert rows(client.text(), "ACCEPTED") == [["0"], [last]]
    of_wrong = [row for row in rows(client.text(), "REFUSED") if row[0] != "0"]
    assert [row[:2] for row in of_wrong] == [[str(n), "23"] for n in range(1, len(WRONG) + 1)]
    for row, text in zip(of_wrong, WRONG.values(), strict=True):
        assert text in row[2]

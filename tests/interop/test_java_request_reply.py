"""Questions and answers between official Java clients: replies arrive, are missed, or find nobody.

A Java client sends a question or a reply again when its connection was closed under it, as it does itself when a
request on it timed out. Both replies to such a question are pushed, and the client, which looks a question up and
removes it in two steps, calls back for both when they come together. So callbacks are compared with the replies that
the broker took: one for each question, and never more than replies.
"""

import asyncio
import re
from pathlib import Path

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from tests.support.java import Java
from tests.support.java_lines import rows
from tests.support.our_servers import Cluster, OurServers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

COUNT = 20
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def stored(cluster: Cluster, topic: str) -> int:
    """Return the number of messages in a topic."""

    async def ask() -> int:
        async with AdminClient(cluster.address) as admin:
            stats = await admin.examine_topic_stats(topic)
            return sum(offset.max_offset - offset.min_offset for offset in stats.offset_table.values())

    return asyncio.run(ask())


@pytest.mark.proves("Request and reply, batches, types of messages", "requests are answered once, or time out")
@pytest.mark.proves("Request and reply, batches, types of messages", "a reply to nobody is rejected and not stored")
@pytest.mark.parametrize("client", ["5.5.0", pytest.param("4.9.8", marks=pytest.mark.soak)])
def test_questions_are_answered_once_or_time_out(
    java: Java, our_servers: OurServers, cluster: Cluster, tmp_path: Path, client: str
):
    cluster.make_topic("Question")
    gate = tmp_path / "gate"
    there = (f"namesrv={cluster.address}", "topic=Question")
    answerer = java.start("Answer", *there, "group=CG_Answer", f"gate={gate}", client=client)
    answerer.wait_for("STARTED")
    asker = java.start("Ask", *there, f"count={COUNT}", client=client)
    asker.wait_for("LEFT")

    asked = [f"{way} {n}" for way in ("sync", "async") for n in range(COUNT)]
    answered = rows(asker.text(), "ANSWERED")
    assert {tuple(row) for row in answered} == {(each.split()[0], each, f"re: {each}") for each in asked}
    ((waited_ms,),) = rows(asker.text(), "TIMEOUT")
    assert int(waited_ms) >= 1_990, "less what the client took to send, in whole milliseconds"
    wait_until(lambda: bool(rows(answerer.text(), "HEARD")), "the question that is not answered has come")
    # A reply is acknowledged after it has arrived.
    wait_until(lambda: {row[0] for row in rows(answerer.text(), "REPLIED")} == set(asked), "all are acknowledged")
    replies = stored(cluster, REPLY_TOPIC)
    assert len(asked) <= len(answered) <= replies, (
        "no reply is pushed twice: one each where the clients sent none again"
    )

    # Who asked dies before the answer to its last question.
    asker.kill()
    gate.touch()
    wait_until(lambda: bool(rows(answerer.text(), "REFUSED")), "a reply to nobody is refused")
    ((question, why),) = rows(answerer.text(), "REFUSED")
    assert question == "late"
    assert "CODE: 1" in why
    # Known to be gone, or found out while it is pushed.
    assert re.search(r"push reply message (fail, channel of <.+> not found\.|to .+ fail: the connection to)", why)
    assert stored(cluster, REPLY_TOPIC) == replies, "what reached nobody is not stored"
    assert len(rows(asker.text(), "ANSWERED")) == len(answered)
    assert our_servers.errors() == []

"""Messages that official Java consumers fail at: when they come again, and when they are dead.

Retries of hours are waited for by the clock of the broker, which a test steps forward. Store times are by that clock.
"""

import itertools
import time
from collections.abc import Callable

import pytest

from tests.support.clocked_broker import ClockedBroker, clocked_broker
from tests.support.java import Java
from tests.support.java_lines import Got, check_content
from tests.support.java_scenario import Scenario
from tests.support.our_servers import OurServers, make_topic
from tests.support.queue_ends import delayed, wait_delayed, wait_stored

pytestmark = pytest.mark.java

SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
FIRST_LEVEL = 3
MAX_RETRIES = 16


class Broker:
    """A name server, a broker with a clock, and clients in a JVM."""

    def __init__(self, servers: OurServers, java: Java, *topics: str, client: str = "5.5.0") -> None:
        self.namesrv = servers.namesrv().address
        self.process: ClockedBroker = clocked_broker(servers, self.namesrv)
        for topic in topics:
            make_topic(self.process.address, self.namesrv, topic, 1)
        self.topic = topics[0]
        self.clients = Scenario(java, self.namesrv, client)

    def wait_delayed(self, wanted: dict[int, int]) -> None:
        wait_delayed(self.process, self.namesrv, self.topic, wanted)

    def wait_dead(self, group: str, count: int) -> None:
        wait_stored(self.process, self.namesrv, f"%DLQ%{group}", self.topic, count)


def count_is(count: int) -> Callable[[list[Got]], bool]:
    return lambda messages: len(messages) == count


def attempts(messages: list[Got], n: int) -> list[Got]:
    return [each for each in messages if each.n == n]


@pytest.mark.proves(
    "Retries and dead letters",
    "by delay level 3 + reconsumeTimes: after 10 s, 30 s, 1 m … 2 h, by the broker's clock",
)
@pytest.mark.proves("Retries and dead letters", "an explicit `delayLevel`; a negative one makes a dead letter at once")
@pytest.mark.proves(
    "Retries and dead letters",
    "16 retries, then `%DLQ%<group>`: one for all topics, made by the first dead letter, read and sent again",
)
@pytest.mark.proves("Retries and dead letters", "`ORIGIN_MESSAGE_ID` and the first topic are kept")
def test_retries_back_off_until_the_message_is_a_dead_letter(java: Java, our_servers: OurServers):
    broker = Broker(our_servers, java, "Retry", "Other")
    clients, clock = broker.clients, broker.process
    clients.do("consume", name="c", group="G", topic="Retry,Other")
    began = time.monotonic()
    clients.do("send", topic="Retry", first=0, tags="later")
    for retry in range(MAX_RETRIES):
        level = FIRST_LEVEL + retry
        broker.wait_delayed({level: 1})
        clock.set_clock(f"step {SECONDS[level - 1]}")
        clients.wait_got("c", count_is(retry + 2), f"attempt {retry + 2}")
    # An explicit level, and one that says at once that nothing will help, in another topic.
    clients.do("send", topic="Retry", first=1, tags="-,level5")
    broker.wait_delayed({5: 2})
    clock.set_clock("step 60")
    clients.do("send", topic="Other", first=2, tags="dead")
    clients.wait_got("c", count_is(MAX_RETRIES + 1 + 2 + 1), "all attempts")
    spent_ms = (time.monotonic() - began) * 1000

    messages = clients.got("c")
    check_content(messages, "later,level5,dead")
    assert [each.reconsume_times for each in attempts(messages, 0)] == list(range(MAX_RETRIES + 1))
    assert [each.reconsume_times for each in attempts(messages, 1)] == [0, 1]
    assert [each.reconsume_times for each in attempts(messages, 2)] == [0]
    stored = [each.stored for each in attempts(messages, 0)]
    for retry, seconds in enumerate(SECONDS[FIRST_LEVEL - 1 :]):
        assert 1000 * seconds <= stored[retry + 1] - stored[retry] <= 1000 * seconds + spent_ms, f"retry {retry + 1}"
    first, second = (each.stored for each in attempts(messages, 1))
    assert 60_000 <= second - first <= 60_000 + spent_ms
    acknowledged = {each.n: each.msg_id for each in clients.sent()}
    assert {(each.n, each.msg_id) for each in messages} == set(acknowledged.items()), "the first id over all attempts"

    # One topic for the dead letters of all topics, which can be read and sent again.
    broker.wait_dead("G", 2)
    clients.do("dead", group="G")
    offset_ids = dict(clients.lines("OFFSET-ID"))
    assert sorted(origins(clients)) == [("0", "Retry", offset_ids["0"]), ("2", "Other", offset_ids["2"])]
    check_content(clients.dead(), "later,level5,dead")
    assert {each.queue_id for each in clients.dead()} == {0}
    assert delayed(broker.namesrv, "Retry") == {**dict.fromkeys(range(3, 19), 1), 5: 2}, "nothing was delayed but these"
    clients.do("dead", group="G", resend=1)
    again = clients.wait_got("c", count_is(MAX_RETRIES + 6), "the resent ones")[-2:]
    assert sorted((each.n, each.topic, each.tags, each.reconsume_times) for each in again) == [
        (0, "Retry", "resent", 0),
        (2, "Other", "resent", 0),
    ]
    assert our_servers.errors() == []


def origins(clients: Scenario) -> list[tuple[str, ...]]:
    return [tuple(row) for row in clients.lines("ORIGIN")]


@pytest.mark.proves(
    "Retries and dead letters",
    "`maxReconsumeTimes` of the consumer; that of the group (`retryMaxTimes`) for clients that say nothing",
)
@pytest.mark.proves("Retries and dead letters", "broadcasting never retries")
@pytest.mark.parametrize("client", ["5.5.0", pytest.param("4.9.8", marks=pytest.mark.soak)])
def test_a_consumer_sets_the_retry_limit_and_broadcasting_never_retries(
    java: Java, our_servers: OurServers, client: str
):
    broker = Broker(our_servers, java, "Limit", client=client)
    clients, clock = broker.clients, broker.process
    clients.do("consume", name="limited", group="G_limited", topic="Limit", max=2)
    clients.do("consume", name="broadcast", group="G_broadcast", topic="Limit", model="BROADCASTING")
    clients.do("send", topic="Limit", first=0, tags="later")
    for retry in range(2):
        broker.wait_delayed({FIRST_LEVEL + retry: 1})
        clock.set_clock(f"step {SECONDS[FIRST_LEVEL - 1 + retry]}")
        clients.wait_got("limited", count_is(retry + 2), "the next attempt")
    clients.wait_got("broadcast", count_is(1), "the message")
    # Hours later nothing has come to the one that broadcasts but what is new.
    clock.set_clock("step 36000")
    clients.do("send", topic="Limit", first=1, tags="-,ok")
    for name in ("limited", "broadcast"):
        clients.wait_got(name, lambda messages: 1 in {each.n for each in messages}, "the next message")

    assert [(each.n, each.reconsume_times) for each in clients.got("limited")] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [(each.n, each.reconsume_times) for each in clients.got("broadcast")] == [(0, 0), (1, 0)]
    broker.wait_dead("G_limited", 1)
    clients.do("dead", group="G_limited")
    assert [(row[0], row[1]) for row in origins(clients)] == [("0", "Limit")]
    with pytest.raises(Exception, match="Can not find Message Queue for this topic, %DLQ%G_broadcast"):
        clients.do("dead", group="G_broadcast")
    assert delayed(broker.namesrv, "Limit") == {3: 1, 4: 1}


@pytest.mark.proves("Retries and dead letters", "orderly consumers suspend for 1 s and try again in place, without end")
@pytest.mark.proves(
    "Retries and dead letters",
    "orderly consumers with `maxReconsumeTimes`: then a dead letter, and the next message",
)
def test_orderly_consumers_retry_in_place_until_their_limit(java: Java, our_servers: OurServers):
    broker = Broker(our_servers, java, "Orderly")
    clients = broker.clients
    clients.do("consume", name="endless", group="G_endless", topic="Orderly", listener="orderly", suspend=20)
    clients.do("consume", name="limited", group="G_limited", topic="Orderly", listener="orderly", max=2)
    clients.do("send", topic="Orderly", count=3, tags="ok,later,ok")
    endless = clients.wait_got("endless", lambda messages: len(messages) > 2 * MAX_RETRIES, "many attempts")
    limited = clients.wait_got("limited", lambda messages: 2 in {each.n for each in messages}, "the last one")

    tried = [(each.n, each.reconsume_times) for each in endless]
    assert tried == [(0, 0), *((1, times) for times in range(len(endless) - 1))], "the next one waits for it"
    assert [(each.n, each.reconsume_times) for each in limited] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    received = [each.received for each in limited if each.n == 1]
    assert all(later - earlier >= 1000 for earlier, later in itertools.pairwise(received)), "1 s is the default"
    check_content(endless + limited, "ok,later,ok")
    broker.wait_dead("G_limited", 1)
    clients.do("dead", group="G_limited")
    assert [row[:2] for row in clients.lines("ORIGIN")] == [["1", "Orderly"]]
    assert delayed(broker.namesrv, "Orderly") == {}, "neither is retried by the broker"
    assert our_servers.errors() == []


@pytest.mark.proves(
    "Retries and dead letters",
    "a consumer killed between receive and acknowledgement: the message comes again",
)
def test_unacknowledged_messages_of_a_killed_consumer_are_redelivered(java: Java, our_servers: OurServers):
    broker = Broker(our_servers, java, "Killed")
    killed = broker.clients
    killed.do("consume", name="c", group="G", topic="Killed")
    killed.do("send", topic="Killed", count=20, tags="ok")
    killed.do("send", topic="Killed", first=20, count=2, tags="hang")
    killed.wait_got("c", lambda messages: {each.n for each in messages} == set(range(22)), "all")
    killed.process.kill()

    heir = Scenario(java, broker.namesrv)
    heir.do("send", topic="Killed", first=22, tags="ok")
    heir.do("consume", name="heir", group="G", topic="Killed")
    # Its threads take those of one pull side by side, so that the last one need not be the last to come.
    messages = heir.wait_got("heir", lambda messages: {each.n for each in messages} >= {20, 21, 22}, "the last three")
    check_content([each for each in messages if each.n not in (20, 21)], "ok")
    numbers = [each.n for each in messages if each.n >= 20]
    assert sorted(numbers) == [20, 21, 22], "each of those that were not acknowledged, once"
    assert {each.reconsume_times for each in messages} == {0}
    # In the killed one, each was given once.
    assert sorted(each.n for each in killed.got("c")) == list(range(22))
    assert delayed(broker.namesrv, "Killed") == {}


@pytest.mark.proves("Retries and dead letters", "`consumeTimeout`: the client sends back what takes too long")
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_message_consumed_for_too_long_is_sent_back(java: Java, our_servers: OurServers):
    # The client looks each minute, by its own clock: nothing here makes that shorter.
    broker = Broker(our_servers, java, "Slow")
    clients = broker.clients
    clients.do("consume", name="c", group="G", topic="Slow", timeout=1)
    clients.do("send", topic="Slow", tags="hang")
    broker.process.wait_until(lambda: delayed(broker.namesrv, "Slow") == {FIRST_LEVEL: 1}, 200, "have it sent back")
    broker.process.set_clock("step 10")
    messages = clients.wait_got("c", count_is(2), "it again")

    assert [(each.n, each.reconsume_times) for each in messages] == [(0, 0), (0, 1)]
    assert messages[1].stored - messages[0].stored >= 60_000 + 10_000
    check_content(messages, "hang")

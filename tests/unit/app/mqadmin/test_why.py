"""Sentences of mqadmin why, from facts that a test cluster does not make easily."""

import re
from typing import Any

import msgspec
import pytest

from rocketbroker.app.mqadmin.why import Copies, Facts, Outcome, explain, matches
from rocketbroker.codec.message.message_decoder import decode_messages, encode_record
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.trace_data import SubAfterTrace
from rocketbroker.codec.remoting.bodies.client import Connection, ConsumerConnection, SubscriptionData
from rocketbroker.codec.remoting.bodies.offset import OffsetWrapper
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig


def stored(**properties: str) -> MessageExt:
    host = host_bytes("127.0.0.1", 10911)
    raw = encode_properties({"UNIQ_KEY": "U" * 32, **properties})
    return decode_messages(encode_record(1, 0, 2, 500, 0, 1000, host, 2000, host, 0, 0, b"x", b"T", raw))[0]


def facts(**changes: Any) -> Facts:
    """A message that waits for a client which owns its queue."""
    clients = ConsumerConnection([Connection("one", "10.0.0.1:5")], {"T": SubscriptionData("T", "*", 0, ["*"])})
    whole = Facts(
        "G",
        "T",
        broker="broker-a",
        address="10.0.0.9:10911",
        queue=MessageQueue("T", "broker-a", 1),
        offset=7,
        bounds=(5, 10),
        message=stored(TAGS="a"),
        config=SubscriptionGroupConfig("G"),
        clients=clients,
        owner="one",
        are_owners_known=True,
        progress=OffsetWrapper(10, 6, 6, 0),
        consume_tps=2.5,
    )
    return msgspec.structs.replace(whole, **changes)


PASSED = OffsetWrapper(10, 8, 8, 0)
CASES = [
    ({}, Outcome.WAITING, "1 messages of the queue come before it; the group consumes 2.5 a second"),
    ({"message": None, "offset": 3}, Outcome.EXPIRED, "Offset 3 of queue 1 of broker broker-a has expired: .* at 5"),
    ({"message": None, "offset": 10}, Outcome.NOT_FOUND, "Nothing is stored at offset 10 .* ends at 10"),
    ({"queue": None, "message": None, "wanted": "key k"}, Outcome.NOT_FOUND, "no message with key k"),
    ({"queue": None, "message": None, "offset": -1}, Outcome.CAUGHT_UP, "has none for group G"),
    ({"owner": ""}, Outcome.NO_OWNER, "No client consumes this queue"),
    ({"owner": "", "are_owners_known": False}, Outcome.WAITING, "It waits for its turn"),
    ({"clients": None}, Outcome.NO_CLIENT, "No client of group G is connected"),
    ({"clients": None, "config": None}, Outcome.NO_GROUP, "no broker knows the group"),
    ({"config": SubscriptionGroupConfig("G", consume_enable=False)}, Outcome.SUSPENDED, "Group G is suspended"),
    ({"forbidden": True}, Outcome.FORBIDDEN, "forbids group G to read topic T"),
    ({"progress": OffsetWrapper(10, 6, 6, 0, 4, 5, 0)}, Outcome.IN_FLIGHT, "4 messages of the queue are popped"),
    ({"progress": PASSED}, Outcome.CONSUMED, "The group has consumed it"),
    (
        {"progress": PASSED, "traces": [SubAfterTrace("r", "U" * 32, 12, True, "", 0, 3000, "G")]},
        Outcome.CONSUMED,
        "Trace: consumed with success at .* in 12 ms",
    ),
    (
        {"progress": PASSED, "copies": Copies([stored(MAX_RECONSUME_TIMES="3")], [], [])},
        Outcome.RETRYING,
        "of at most 3; the last waits for its delay since",
    ),
    (
        {"progress": PASSED, "copies": Copies([], [stored()], [stored()])},
        Outcome.DEAD_LETTER,
        "dead-letter queue %DLQ%G",
    ),
]


@pytest.mark.parametrize(("changes", "outcome", "sentence"), CASES)
def test_the_outcome_follows_from_the_facts(changes: dict[str, Any], outcome: Outcome, sentence: str):
    answer = explain(facts(**changes))

    assert answer.outcome is outcome
    assert re.search(sentence, " ".join(answer.sentences)), answer.sentences
    assert answer.advice


def test_a_group_that_subscribes_to_other_topics():
    other = ConsumerConnection([Connection("one", "h:1")], {"Other": SubscriptionData("Other", "*")})
    answer = explain(facts(clients=other))
    assert (answer.outcome, "but to Other" in answer.sentences[-1]) == (Outcome.NOT_SUBSCRIBED, True)


@pytest.mark.parametrize(
    ("subscription", "selects"),
    [
        (SubscriptionData("T", "*", 0, []), True),
        (SubscriptionData("T", "a || b", 0, ["a", "b"]), True),
        (SubscriptionData("T", "b", 0, ["b"]), False),
        (SubscriptionData("T", "n > 5", 0, expression_type="SQL92"), True),
        (SubscriptionData("T", "n > 7", 0, expression_type="SQL92"), False),
        (SubscriptionData("T", "n >", 0, expression_type="SQL92"), False),
    ],
)
def test_a_subscription_selects_by_tags_or_sql(subscription: SubscriptionData, selects: bool):
    assert matches(subscription, stored(TAGS="a", n="7")) is selects
    clients = ConsumerConnection([Connection("one", "h:1")], {"T": subscription})
    outcome = explain(facts(clients=clients, message=stored(TAGS="a", n="7"))).outcome
    assert outcome is (Outcome.WAITING if selects else Outcome.FILTERED)

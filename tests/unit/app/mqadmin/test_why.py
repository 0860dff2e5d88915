"""Sentences of mqadmin why, from facts that a test cluster does not make easily."""

import re
from typing import Any

import msgspec
import pytest

from rocketbroker.app.mqadmin.message_facts import Copies, Copy, Facts, Waiting
from rocketbroker.app.mqadmin.message_fate import Outcome, explain, matches
from rocketbroker.codec.message.message_decoder import decode_messages, encode_record
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.trace_data import SubAfterTrace
from rocketbroker.codec.remoting.bodies.client import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    ProcessQueueInfo,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.offset import OffsetWrapper
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from tests.support.recommended_commands import check_commands

QUEUE = MessageQueue("T", "broker-a", 1)


def stored(**properties: str) -> MessageExt:
    host = host_bytes("127.0.0.1", 10911)
    raw = encode_properties({"UNIQ_KEY": "U" * 32, **properties})
    return decode_messages(encode_record(1, 0, 2, 500, 0, 1000, host, 2000, host, 0, 0, b"x", b"T", raw))[0]


def copy_in(topic: str, at: int, *, consumed: int | None = None, due_ms: int | None = None, **changes: Any) -> Copy:
    """A copy at offset 2 of a topic, stored at a time; ``consumed`` is the group's offset there."""
    message = msgspec.structs.replace(stored(), topic=topic, store_timestamp=at, reconsume_times=1, **changes)
    return Copy(message, None if consumed is None else OffsetWrapper(3, consumed), due_ms)


def report(expression: str = "*", tags: tuple[str, ...] = ("*",), **held: Any) -> ConsumerRunningInfo:
    """The report of a client that owns the queue."""
    subscription = SubscriptionData("T", expression, 0, list(tags))
    return ConsumerRunningInfo({}, [subscription], {QUEUE: ProcessQueueInfo(**held)})


def facts(**changes: Any) -> Facts:
    """A message that waits for a client which owns its queue."""
    clients = ConsumerConnection([Connection("one", "10.0.0.1:5")], {"T": SubscriptionData("T", "*", 0, ["*"])})
    whole = Facts(
        "G",
        "T",
        broker="broker-a",
        address="10.0.0.9:10911",
        queue=QUEUE,
        offset=7,
        bounds=(5, 10),
        message=stored(TAGS="a"),
        config=SubscriptionGroupConfig("G"),
        clients=clients,
        running={"one": report()},
        progress=OffsetWrapper(10, 6, 6, 0),
    )
    return msgspec.structs.replace(whole, **changes)


PASSED = OffsetWrapper(10, 8, 8, 0)
UNOWNED = ConsumerRunningInfo({}, [SubscriptionData("T", "*", 0, ["*"])])
NO_CONSUMER: dict[str, Any] = {"clients": None, "running": {}}
RETRY, POP_RETRY, DLQ = "%RETRY%G", "%RETRY%G_T", "%DLQ%G"
BROADCASTING = ConsumerConnection(
    [Connection("one", "h:1")], {"T": SubscriptionData("T", "*")}, message_model=MessageModel.BROADCASTING
)
TWO = ConsumerConnection(
    [Connection("one", "h:1"), Connection("two", "h:2")], {"T": SubscriptionData("T", "a", 0, ["a"])}
)
BY_B = {"two": report("b", ("b",)), "one": msgspec.structs.replace(report("a", ("a",)), mq_table={})}


def success(at: int) -> SubAfterTrace:
    return SubAfterTrace("r", "U" * 32, 12, True, "", 0, at, "G")


def failure(at: int) -> SubAfterTrace:
    return success(at)._replace(success=False)


CASES: list[tuple[dict[str, Any], Outcome, str]] = [
    ({}, Outcome.WAITING, "1 message of the queue comes before it"),
    ({"message": None, "offset": 3}, Outcome.EXPIRED, "Offset 3 of queue 1 of broker broker-a has expired: .* at 5"),
    ({"message": None, "offset": 10}, Outcome.NOT_FOUND, "There is no message at offset 10 .* ends at 10"),
    ({"queue": None, "message": None, "wanted": "key k"}, Outcome.NOT_FOUND, "no message with key k, and none is del"),
    ({"queue": None, "message": None, "offset": -1}, Outcome.CAUGHT_UP, "group G has consumed all messages of topic T"),
    ({"running": {"one": UNOWNED}}, Outcome.NO_OWNER, "No client consumes this queue"),
    ({"running": {}}, Outcome.WAITING, "Client one does not report its state: it hangs.* It waits for its turn"),
    (NO_CONSUMER, Outcome.NO_CLIENT, "No client of group G is connected"),
    ({**NO_CONSUMER, "config": None}, Outcome.NO_GROUP, "broker broker-a does not know the group"),
    ({"config": SubscriptionGroupConfig("G", consume_enable=False)}, Outcome.SUSPENDED, "Group G is suspended"),
    ({"forbidden": True}, Outcome.FORBIDDEN, "forbids group G to read topic T"),
    ({"progress": OffsetWrapper(10, 6, 6, 0, 4, 5, 0)}, Outcome.IN_FLIGHT, "4 messages of the queue are popped"),
    (
        {"progress": OffsetWrapper(10, 6, 6, 0, 1, 5, 0), **NO_CONSUMER},
        Outcome.IN_FLIGHT,
        "1 message of the queue is popped and not acknowledged",
    ),
    ({"progress": OffsetWrapper(10, 8, 8, 0, 1, 5, 0)}, Outcome.IN_FLIGHT, "1 message of the queue is popped"),
    ({"progress": PASSED}, Outcome.CONSUMED, "The group has consumed it"),
    ({"progress": PASSED, "traces": [success(3000)]}, Outcome.CONSUMED, "Trace: consumed with success at .* in 12 ms"),
    ({"traces": [failure(1), success(2)]}, Outcome.CONSUMED, "the newest trace says so"),
    ({"traces": [success(1), failure(2)]}, Outcome.WAITING, "without success"),
    ({"matching": 6, "wanted": "key k"}, Outcome.WAITING, "^6 messages have key k; this is the newest"),
    (
        {"running": {"one": report(cached_msg_count=3, cached_msg_min_offset=6, cached_msg_max_offset=8)}},
        Outcome.WAITING,
        "Client one holds it: 3 messages of the queue fetched and not finished",
    ),
    ({"clients": BROADCASTING, "progress": PASSED}, Outcome.BROADCAST, "each client keeps its own offset"),
    (
        {"clients": TWO, "running": BY_B, "progress": PASSED},
        Outcome.CONFLICT,
        "Conflict: .*: one has TAG a; two has TAG b. Filter: client two, which owns .* 'b' .* does not select",
    ),
    (
        {"progress": PASSED, "copies": Copies([copy_in("SCHEDULE_TOPIC_XXXX", 3000, due_ms=13_000)])},
        Outcome.RETRYING,
        "retry 1 of at most 16 waits for its delay since .*, until ",
    ),
    (
        {"progress": PASSED, "copies": Copies((), [copy_in(RETRY, 3000, consumed=2)]), **NO_CONSUMER},
        Outcome.RETRYING,
        "as offset 2 of %RETRY%G. No client of group G is connected",
    ),
    (
        {"progress": PASSED, "copies": Copies([copy_in("S", 3000)], [copy_in(RETRY, 9000, consumed=3)])},
        Outcome.CONSUMED,
        "consumed it at attempt 2",
    ),
    (
        {"progress": PASSED, "copies": Copies((), [Copy(copy_in(POP_RETRY, 9).message, OffsetWrapper(3, 3, 3, 0, 2))])},
        Outcome.IN_FLIGHT,
        "2 messages of %RETRY%G_T are popped",
    ),
    (
        {"progress": PASSED, "copies": Copies((), [copy_in(RETRY, 3000, consumed=3)], [copy_in(DLQ, 4000)])},
        Outcome.DEAD_LETTER,
        "after 1 retry it was put into the dead-letter queue %DLQ%G",
    ),
    (
        {"progress": PASSED, "copies": Copies((), (), [copy_in(DLQ, 4000)], [copy_in(RETRY, 5000, consumed=3)])},
        Outcome.CONSUMED,
        "it was sent again at .* gone past this copy",
    ),
    (
        {"queue": None, "message": None, "wanted": "id U", "other": copy_in("Dup", 1).message},
        Outcome.OTHER_TOPIC,
        "The message with id U is of topic Dup, not of T",
    ),
    (
        {"queue": None, "message": None, "waiting": Waiting(copy_in("rmq_sys_wheel_timer", 1).message, 5000)},
        Outcome.DELAYED,
        "in rmq_sys_wheel_timer since .*, due at",
    ),
    (
        {"queue": None, "message": None, "waiting": Waiting(copy_in("RMQ_SYS_TRANS_HALF_TOPIC", 1).message)},
        Outcome.HALF_OPEN,
        "asked for the result 0 times. No commit is known",
    ),
    (
        {
            "queue": None,
            "message": None,
            "waiting": Waiting(copy_in("RMQ_SYS_TRANS_HALF_TOPIC", 1).message, is_ended=True),
        },
        Outcome.ROLLED_BACK,
        "The transaction has ended",
    ),
    ({"unanswered": ["Broker broker-b does not answer."]}, Outcome.WAITING, "^Broker broker-b does not answer"),
]


@pytest.mark.parametrize(("changes", "outcome", "sentence"), CASES)
def test_the_outcome_follows_from_the_facts(changes: dict[str, Any], outcome: Outcome, sentence: str):
    answer = explain(facts(**changes))

    assert answer.outcome is outcome
    assert re.search(sentence, " ".join(answer.sentences)), answer.sentences
    assert answer.advice


def test_advice_names_commands_that_exist():
    commands = check_commands([explain(facts(**changes)).advice for changes, _, _ in CASES])
    assert {"updateSubGroup", "resetOffsetByTime", "popStatus", "resendDlq", "consumerStatus", "why"} <= commands


def test_a_group_that_subscribes_to_other_topics():
    other = ConsumerConnection([Connection("one", "h:1")], {"Other": SubscriptionData("Other", "*")})
    answer = explain(facts(clients=other, running={}))
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
    outcome = explain(facts(clients=clients, running={}, message=stored(TAGS="a", n="7"))).outcome
    assert outcome is (Outcome.WAITING if selects else Outcome.FILTERED)


def test_a_suspended_group_is_resumed_with_the_settings_that_it_has():
    config = SubscriptionGroupConfig("G", consume_enable=False, retry_queue_nums=4, retry_max_times=3, broker_id=1)
    answer = explain(facts(config=config))
    assert answer.advice == (
        "mqadmin updateSubGroup -b 10.0.0.9:10911 -g G -s true -m true -d true -o false -q 4 -r 3 -i 1 -w 1 -a true"
    )


def test_one_message_is_consumed_again_by_a_client_or_its_queue_from_it_on():
    pushed = ConsumerConnection(
        [Connection("1@x", "h:1")], {"T": SubscriptionData("T", "*")}, ConsumeType.CONSUME_PASSIVELY
    )
    by_client = explain(facts(progress=PASSED, clients=pushed, running={"1@x": report()})).advice
    assert by_client.endswith(f"mqadmin queryMsgById -t T -i {'U' * 32} -g G -d 1@x")
    alone = explain(facts(progress=PASSED, **NO_CONSUMER)).advice
    assert alone.endswith("on, 3 messages: mqadmin resetOffsetByTime -g G -t T -b broker-a -q 1 -o 7")

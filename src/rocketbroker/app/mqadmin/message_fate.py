"""Sentences of ``mqadmin why``: the fate of one message in one group, from the facts about both.

The order of the checks is that of their certainty. A trace of a success is a statement of the client, and decides. A
copy for a retry says what happened last. Only without both does the group's offset decide, and then the text says so.
"""

from enum import StrEnum
from typing import NamedTuple

from rocketbroker.app.mqadmin.message_facts import Copy, Facts, Waiting
from rocketbroker.app.mqadmin.remedies import counted, mqadmin, resume_group
from rocketbroker.app.times import human_millis
from rocketbroker.codec.filter.sql_filter import compiled
from rocketbroker.codec.message.message_const import (
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_CHECK_TIMES,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.raw_records import PropertyBlocks
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    ProcessQueueInfo,
    SubscriptionData,
)
from rocketbroker.common.errors import MQFilterError


class Outcome(StrEnum):
    """Fate of the message in the group."""

    NO_TOPIC = "noTopic"
    NOT_FOUND = "notFound"
    OTHER_TOPIC = "otherTopic"
    EXPIRED = "expired"
    DELAYED = "delayed"
    HALF_OPEN = "halfOpen"
    ROLLED_BACK = "rolledBack"
    CAUGHT_UP = "caughtUp"
    FILTERED = "filtered"
    CONFLICT = "conflict"
    DEAD_LETTER = "deadLetter"
    RETRYING = "retrying"
    CONSUMED = "consumed"
    BROADCAST = "broadcast"
    IN_FLIGHT = "inFlight"
    NO_GROUP = "noGroup"
    SUSPENDED = "suspended"
    FORBIDDEN = "forbidden"
    NO_CLIENT = "noClient"
    NOT_SUBSCRIBED = "notSubscribed"
    NO_OWNER = "noOwner"
    WAITING = "waiting"


class Answer(NamedTuple):
    """Sentences, the outcome, and what to do."""

    outcome: Outcome
    sentences: list[str]
    advice: str


def matches(subscription: SubscriptionData, message: MessageExt) -> bool:
    """Return true if a subscription selects a message, by its tags or its SQL92 expression."""
    if subscription.expression_type in {"", "TAG"}:
        tags = set(subscription.tags_set)
        return not tags or "*" in tags or message.tags in tags
    try:
        sql = compiled(subscription.sub_string)
    except MQFilterError:
        return False
    properties = message.properties_bytes
    return sql.is_matched_by_commit_log(PropertyBlocks(memoryview(properties), [0], [len(properties)]))[0]


def explain(facts: Facts) -> Answer:
    """Make sentences of the facts, in the order of the way of a message, and name the outcome."""
    place = f"queue {facts.queue.queue_id} of broker {facts.broker}" if facts.queue else ""
    if facts.queue is None:
        return _without_message(facts)
    if facts.message is None:
        return _nothing_at(facts, place)
    sentences, is_selected = _known(facts, facts.message, place)
    if facts.clients is not None and facts.clients.message_model is MessageModel.BROADCASTING:
        return Answer(
            Outcome.BROADCAST,
            [
                *sentences,
                f"Group {facts.group} broadcasts: each client keeps its own offset, and brokers do not know it.",
            ],
            f"ask one of its clients: {mqadmin('consumerStatus', '-g', facts.group, '-i', _some_client(facts))}",
        )
    if facts.traces and facts.traces[-1].success:
        return Answer(
            Outcome.CONSUMED, [*sentences, "The group has consumed it: the newest trace says so."], _again(facts)
        )
    if (newest := facts.copies.newest) is not None:
        return _copied(facts, sentences, newest)
    if _conflict(facts):
        return Answer(
            Outcome.CONFLICT,
            [*sentences, "A client that does not select the message goes past it for the whole group."],
            "give all clients of the group the same subscription, or each its own group",
        )
    if facts.progress is not None and facts.progress.consumer_offset > facts.offset:
        return _passed(facts, sentences, is_selected=is_selected)
    return _ahead(facts, sentences, is_selected=is_selected)


def _nothing_at(facts: Facts, place: str) -> Answer:
    """Explain an offset without a message."""
    first, after = facts.bounds
    if facts.offset < first:
        text = f"Offset {facts.offset:,} of {place} has expired: the queue begins at {first:,}."
        return Answer(
            Outcome.EXPIRED, [text], "raise fileReservedTime if messages must be kept longer; this one is gone"
        )
    text = f"There is no message at offset {facts.offset:,} of {place}: the queue ends at {after:,}."
    return Answer(Outcome.NOT_FOUND, [text], f"look at the ends of the queues: {_topic_status(facts)}")


def _known(facts: Facts, message: MessageExt, place: str) -> tuple[list[str], bool]:
    """Return what is known before any conclusion, and whether the client of the queue selects the message."""
    stored = human_millis(message.store_timestamp)
    sentences = list(facts.unanswered)
    if facts.matching > 1:
        sentences.append(f"{facts.matching:,} messages have {facts.wanted}; this is the newest.")
    sentences.append(
        f"Stored: {place} has it at offset {facts.offset:,} since {stored}, sent by {message.born_host_text}."
    )
    if conflict := _conflict(facts):
        sentences.append(f"Conflict: the clients of the group subscribe differently: {conflict}")
    by_owner = facts.subscription_of(facts.owner)
    subscription = by_owner or (facts.clients.subscription_table.get(facts.topic) if facts.clients else None)
    is_selected = subscription is None or matches(subscription, message)
    if subscription is not None:
        verb = "selects" if is_selected else "does not select"
        tags = f"tag {message.tags}" if message.tags else "no tag"
        who = f"client {facts.owner}, which owns the queue," if by_owner and conflict else "the group"
        sentences.append(
            f"Filter: {who} subscribes to {subscription.sub_string!r} ({subscription.expression_type or 'TAG'}), "
            f"which {verb} the message ({tags})."
        )
    if facts.progress is not None and (facts.config is not None or facts.progress.consumer_offset):
        position = facts.progress.consumer_offset
        done = f"committed offset {position:,} of this queue" if position else "committed no offset of this queue yet"
        left = counted(max(0, facts.bounds[1] - position), "message")
        sentences.append(f"Progress: group {facts.group} has {done}, {left} before its end.")
    if facts.owner:
        sentences.append(f"Owner: client {facts.owner} consumes the queue.")
    sentences += [
        f"Client {client} does not report its state: it hangs, cannot be reached, or is too old to answer."
        for client in facts.silent
    ]
    for trace in facts.traces:
        result = "with success" if trace.success else "without success"
        at = f" at {human_millis(trace.time_ms)}" if trace.time_ms else ""
        sentences.append(f"Trace: consumed {result}{at} in {trace.cost_ms:,} ms.")
    return sentences, is_selected


def _conflict(facts: Facts) -> str:
    """Return how the subscriptions of the clients to the topic differ, empty if they agree."""
    expressions = facts.expressions
    if len(set(expressions.values())) > 1:
        return "; ".join(f"{client} has {text or 'none'}" for client, text in sorted(expressions.items())) + "."
    return facts.conflict if facts.topic in facts.conflict else ""


def _topic_status(facts: Facts) -> str:
    return mqadmin("topicStatus", "-t", facts.topic)


def _some_client(facts: Facts) -> str:
    connected = facts.clients.connection_set if facts.clients else []
    return facts.owner or next(iter(facts.running), "") or next((each.client_id for each in connected), "CLIENT_ID")


def _again(facts: Facts) -> str:
    """Return how to consume the message once more, and the extent of it."""
    assert facts.queue is not None
    is_pushed = facts.clients is not None and facts.clients.consume_type is ConsumeType.CONSUME_PASSIVELY
    if facts.message is not None and is_pushed and facts.running:
        message_id = facts.message.uniq_key or facts.message.offset_msg_id
        words = ("-t", facts.topic, "-i", message_id, "-g", facts.group, "-d", _some_client(facts))
        return f"nothing; a client consumes this one message again by: {mqadmin('queryMsgById', *words)}"
    after = counted(facts.bounds[1] - facts.offset, "message")
    return f"nothing; to consume this queue again from the message on, {after}: {_reset(facts)}"


def _reset(facts: Facts) -> str:
    assert facts.queue is not None
    where = ("-b", facts.broker, "-q", facts.queue.queue_id, "-o", facts.offset)
    return mqadmin("resetOffsetByTime", "-g", facts.group, "-t", facts.topic, *where)


def _without_message(facts: Facts) -> Answer:
    if facts.other is not None:
        text = f"The message with {facts.wanted} is of topic {facts.other.topic}, not of {facts.topic}."
        return Answer(
            Outcome.OTHER_TOPIC,
            [*facts.unanswered, text],
            f"ask for its topic: {mqadmin('why', facts.group, facts.other.topic, '-i', facts.other.offset_msg_id)}",
        )
    if facts.waiting is not None:
        return _waiting(facts, facts.waiting)
    if facts.message is not None:
        doctor = mqadmin("doctor", "-t", facts.topic)
        return Answer(
            Outcome.NOT_FOUND, [*facts.unanswered, "The queue of the message is in no route."], f"look for it: {doctor}"
        )
    if facts.wanted:
        text = (
            f"Topic {facts.topic} has no message with {facts.wanted}, and none is delayed or half: it was not sent to "
            "this topic, was not indexed, or has expired."
        )
        return Answer(
            Outcome.NOT_FOUND,
            [*facts.unanswered, text],
            "compare with the SendResult of the producer, or name the message by --offset; a message sent with several "
            "keys is found by each of them",
        )
    text = f"No message waits: group {facts.group} has consumed all messages of topic {facts.topic}."
    return Answer(
        Outcome.CAUGHT_UP,
        [*facts.unanswered, text],
        "nothing; give --key, --id or --offset to ask for one message",
    )


def _waiting(facts: Facts, waiting: Waiting) -> Answer:
    """Explain a message that its topic does not have yet."""
    message = waiting.message
    since = human_millis(message.store_timestamp)
    if message.topic != RMQ_SYS_TRANS_HALF_TOPIC:
        due = f", due at {human_millis(waiting.due_ms)}" if waiting.due_ms is not None else ""
        text = f"Delayed: the broker holds it in {message.topic} since {since}{due}; topic {facts.topic} lacks it yet."
        return Answer(Outcome.DELAYED, [*facts.unanswered, text], "wait until it is due, and ask again")
    producer = message.get_property(PROPERTY_PRODUCER_GROUP) or "unknown"
    checks = int(message.get_property(PROPERTY_TRANSACTION_CHECK_TIMES) or 0)
    text = (
        f"Transaction: producer group {producer} sent it as a half message at {since}; the broker has asked for the "
        f"result {counted(checks, 'time')}."
    )
    if waiting.is_ended:
        return Answer(
            Outcome.ROLLED_BACK,
            [*facts.unanswered, text, f"The transaction has ended, and topic {facts.topic} has no message of it."],
            "nothing if the producer rolled it back; otherwise its checks gave no result: look at the producer's log",
        )
    return Answer(
        Outcome.HALF_OPEN,
        [*facts.unanswered, text, "No commit is known; a rollback becomes visible at the next check."],
        f"keep a producer of group {producer} connected, whose listener commits or rolls back",
    )


def _copied(facts: Facts, sentences: list[str], newest: Copy) -> Answer:
    """Explain a message that failed in the group before; its newest copy decides."""
    group, copies, message = facts.group, facts.copies, newest.message
    at = human_millis(message.store_timestamp)
    if newest in copies.dead:
        sentences.append(
            f"Retries: after {counted(message.reconsume_times, 'retry').replace('retrys', 'retries')} it was put into "
            f"the dead-letter queue {DLQ_GROUP_TOPIC_PREFIX}{group} at {at}. No later copy of it was found; one "
            "without keys that was sent again cannot be found."
        )
        resend = mqadmin("resendDlq", group)
        return Answer(
            Outcome.DEAD_LETTER, sentences, f"correct the consumer, then send it again if that is not done: {resend}"
        )
    if newest in copies.delayed:
        due = f", until {human_millis(newest.due_ms)}" if newest.due_ms is not None else ""
        sentences.append(f"Retries: retry {_attempt(facts, message)} waits for its delay since {at}{due}.")
        return _to_come(facts, sentences)
    what = "it was sent again" if newest in copies.resent else f"retry {_attempt(facts, message)} was due"
    sentences.append(f"Retries: {what} at {at}, as offset {message.queue_offset:,} of {message.topic}.")
    popped = newest.progress.pop_in_flight if newest.progress else None
    if newest.is_passed and popped:
        sentences.append(_popped(popped, message.topic))
        return Answer(Outcome.IN_FLIGHT, sentences, _pop_status(facts))
    if newest.is_passed:
        attempt = f" at attempt {message.reconsume_times + 1}" if message.reconsume_times else ""
        sentences.append(f"The group has consumed it{attempt}: it has gone past this copy, and no later one exists.")
        return Answer(Outcome.CONSUMED, sentences, _again(facts))
    return _to_come(facts, sentences)


def _attempt(facts: Facts, message: MessageExt) -> str:
    """Return the number of a retry, with the limit of its client, or of the group unless the client has another."""
    stored = message.get_property(PROPERTY_MAX_RECONSUME_TIMES)
    limits = {stored or info.properties.get("maxReconsumeTimes", "-1") for info in facts.running.values()} - {"-1"}
    limit = limits.pop() if len(limits) == 1 else str(facts.config.retry_max_times if facts.config else 16)
    return f"{message.reconsume_times:,} of at most {limit}"


def _to_come(facts: Facts, sentences: list[str]) -> Answer:
    """Explain a retry that is still to come, and what keeps the group from taking it."""
    if (obstacle := _obstacle(facts)) is not None:
        return Answer(Outcome.RETRYING, [*sentences, *obstacle.sentences], obstacle.advice)
    progress = mqadmin("consumerProgress", "-g", facts.group)
    return Answer(
        Outcome.RETRYING,
        sentences,
        f"look for the error in the logs of the consumer; the progress of the retries: {progress}",
    )


def _popped(count: int, where: str) -> str:
    if count == 1:
        return f"1 message of {where} is popped and not acknowledged; it may be this one."
    return f"{count:,} messages of {where} are popped and not acknowledged; this may be one of them."


def _pop_status(facts: Facts) -> str:
    command = mqadmin("popStatus", "-g", facts.group, "-t", facts.topic)
    returns = facts.progress.pop_revive_time if facts.progress else None
    first = f"; the first return at {human_millis(returns)}" if returns else ""
    return f"wait until they are acknowledged or return{first}: {command}"


def _passed(facts: Facts, sentences: list[str], *, is_selected: bool) -> Answer:
    """Explain a message that the group has gone past, and of which no copy for a retry exists."""
    if facts.progress is not None and facts.progress.pop_in_flight:
        sentences = [*sentences, _popped(facts.progress.pop_in_flight, "the queue")]
        return Answer(Outcome.IN_FLIGHT, sentences, _pop_status(facts))
    if not is_selected:
        return Answer(
            Outcome.FILTERED,
            [*sentences, "The group went past it, and its filter does not select it now."],
            "correct the expression of the consumers, then let them consume this queue again from the message on, "
            f"{counted(facts.bounds[1] - facts.offset, 'message')}: {_reset(facts)}; a wrong tag needs a new message",
        )
    text = "The group has consumed it: the committed offset is after it, and no retry is left."
    from_last = facts.clients is not None and facts.clients.consume_from_where in {
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET,
    }
    if from_last:
        text += " A group that began after the message would have skipped it (CONSUME_FROM_LAST_OFFSET)."
    return Answer(Outcome.CONSUMED, [*sentences, text], _again(facts))


def _obstacle(facts: Facts) -> Answer | None:
    """Return what keeps the whole group from consuming at this broker, None if nothing does."""
    group, topic = facts.group, facts.topic
    if facts.config is not None and not facts.config.consume_enable:
        return Answer(
            Outcome.SUSPENDED,
            [f"Group {group} is suspended: consumeEnable is false at broker {facts.broker}."],
            resume_group(facts.address, facts.config),
        )
    if facts.forbidden:
        return Answer(
            Outcome.FORBIDDEN,
            [f"Broker {facts.broker} forbids group {group} to read topic {topic}."],
            "allow it by UPDATE_AND_GET_GROUP_FORBIDDEN (update_and_get_group_read_forbidden of the admin client, "
            "readable=True)",
        )
    if facts.clients is None or not facts.clients.connection_set:
        known = "" if facts.config else f", and broker {facts.broker} does not know the group"
        return Answer(
            Outcome.NO_CLIENT if facts.config else Outcome.NO_GROUP,
            [f"No client of group {group} is connected{known}."],
            f"start a consumer of group {group} that subscribes to {topic}",
        )
    if topic not in facts.clients.subscription_table:
        has = ", ".join(sorted(facts.clients.subscription_table))
        return Answer(
            Outcome.NOT_SUBSCRIBED,
            [f"The clients of group {group} do not subscribe to {topic}, but to {has}."],
            f"subscribe to {topic}, the same in all clients of the group",
        )
    return None


def _ahead(facts: Facts, sentences: list[str], *, is_selected: bool) -> Answer:
    """Explain a message that the group has still to reach."""
    popped = facts.progress.pop_in_flight if facts.progress else None
    obstacle = _obstacle(facts)
    if popped and (obstacle is None or obstacle.outcome in {Outcome.NO_CLIENT, Outcome.NO_GROUP}):
        added = obstacle.sentences if obstacle else []
        return Answer(Outcome.IN_FLIGHT, [*sentences, *added, _popped(popped, "the queue")], _pop_status(facts))
    if obstacle is not None:
        return Answer(obstacle.outcome, [*sentences, *obstacle.sentences], obstacle.advice)
    if not facts.owner and not facts.silent and facts.progress is not None and not facts.pops:
        return Answer(
            Outcome.NO_OWNER,
            [*sentences, "No client consumes this queue."],
            f"find the cause: {mqadmin('doctor', '-g', facts.group)}",
        )
    if not is_selected:
        return Answer(
            Outcome.FILTERED,
            [*sentences, "The group will go past it, since its filter does not select it now."],
            "correct the expression of the consumers before they reach it; a wrong tag needs a new message",
        )
    return _in_turn(facts, sentences)


def _spans(held: ProcessQueueInfo, offset: int) -> bool:
    return held.cached_msg_min_offset <= offset <= held.cached_msg_max_offset


def _in_turn(facts: Facts, sentences: list[str]) -> Answer:
    """Explain a message that a client is to consume, or holds already."""
    group, client = facts.group, _some_client(facts)
    stacks = mqadmin("consumerStatus", "-g", group, "-i", client, "-s")
    held = facts.held
    if held is not None and held.cached_msg_count and _spans(held, facts.offset):
        text = f"Client {client} holds it: {counted(held.cached_msg_count, 'message')} of the queue"
        since = human_millis(held.last_consume_timestamp)
        return Answer(
            Outcome.WAITING,
            [*sentences, f"{text} fetched and not finished, and none finished since {since}."],
            f"if that is long ago, a handler hangs; see its stack: {stacks}",
        )
    position = facts.progress.consumer_offset if facts.progress else facts.bounds[0]
    before = facts.offset - max(position, facts.bounds[0])
    verb = "comes" if before == 1 else "come"
    sentences = [*sentences, f"It waits for its turn: {counted(before, 'message')} of the queue {verb} before it."]
    silent = f"look at client {facts.silent[0]} first, which does not answer; " if facts.silent else ""
    advice = f"{silent}if this number does not fall, see the stacks of the handlers: {stacks}"
    return Answer(Outcome.WAITING, sentences, advice)

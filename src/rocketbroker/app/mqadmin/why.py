"""``mqadmin why``: the way of one message to one group, from send to acknowledgement. RocketMQ has no such command.

``find`` collects what servers and clients say about the message and the group; ``explain`` makes sentences of it and
names the outcome. Copies of a message in retry topic and dead-letter queue are found by its unique id, which they keep.
"""

from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.admin_connection import addresses_of
from rocketbroker.client.admin.message_admin import ReadableQueue
from rocketbroker.client.core.errors import ClientError, TopicRouteError
from rocketbroker.codec.filter.sql_filter import compiled
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.raw_records import PropertyBlocks
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRACE_TOPIC,
)
from rocketbroker.codec.message.trace_data import SubAfterTrace, decode_traces
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection, SubscriptionData
from rocketbroker.codec.remoting.bodies.offset import OffsetWrapper
from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.bodies.topic_config import INDEX_PERM_READ, SubscriptionGroupConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, MQFilterError, RocketBrokerError


class Outcome(StrEnum):
    """Fate of the message in the group."""

    NO_TOPIC = "noTopic"
    NOT_FOUND = "notFound"
    EXPIRED = "expired"
    CAUGHT_UP = "caughtUp"
    FILTERED = "filtered"
    DEAD_LETTER = "deadLetter"
    RETRYING = "retrying"
    CONSUMED = "consumed"
    IN_FLIGHT = "inFlight"
    NO_GROUP = "noGroup"
    SUSPENDED = "suspended"
    FORBIDDEN = "forbidden"
    NO_CLIENT = "noClient"
    NOT_SUBSCRIBED = "notSubscribed"
    NO_OWNER = "noOwner"
    WAITING = "waiting"


class Copies(NamedTuple):
    """Copies of a message that was not consumed: delayed, in the retry topic, and in the dead-letter queue."""

    delayed: list[MessageExt]
    retried: list[MessageExt]
    dead: list[MessageExt]


class Facts(msgspec.Struct):
    """All that is known of the message and the group; times in ms.

    Attributes:
        wanted: key or id that was asked for.
        broker: name and address of the broker that has the message.
        queue: the queue of the message, or None if there is no message.
        offset: offset of the message in the queue.
        bounds: first and next offset of the queue.
        message: the message, None if it is not stored any more.
        config: the group at this broker, None if it has no such group.
        forbidden: the broker forbids the group to read the topic.
        clients: the clients of the group, None if none is connected.
        owner: client that consumes the queue, empty if nobody says so.
        are_owners_known: every client has said what it consumes.
        progress: progress of the group in the queue, None without one.
        consume_tps: messages that the group consumes in a second.
        copies: copies for retries.
        traces: ends of consumption that the trace topic has.
    """

    group: str
    topic: str
    wanted: str = ""
    broker: str = ""
    address: str = ""
    queue: MessageQueue | None = None
    offset: int = -1
    bounds: tuple[int, int] = (0, 0)
    message: MessageExt | None = None
    config: SubscriptionGroupConfig | None = None
    forbidden: bool = False
    clients: ConsumerConnection | None = None
    owner: str = ""
    are_owners_known: bool = False
    progress: OffsetWrapper | None = None
    consume_tps: float = 0.0
    copies: Copies = Copies([], [], [])
    traces: list[SubAfterTrace] = []


class Answer(NamedTuple):
    """Sentences, the outcome, and what to do."""

    outcome: Outcome
    sentences: list[str]
    advice: str


@sub_command("why", "Explain what became of a message in a consumer group.", reads=True)
async def why(
    admin: AdminClient,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the message.")],
    key: Annotated[str | None, typer.Option("-k", "--key", metavar="KEY", help="Newest message with this key.")] = None,
    msg_id: Annotated[
        str | None, typer.Option("-i", "--id", metavar="ID", help="Message with this id of producer or broker.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--offset",
            metavar="[BROKER:]QUEUE:OFFSET",
            help="Message at this offset; BROKER if several have it.",
        ),
    ] = None,
) -> Report:
    """Follow one message, or the next that the group has to consume, from send to acknowledgement."""
    if sum(each is not None for each in (key, msg_id, offset)) > 1:
        raise typer.BadParameter("give one of --key, --id and --offset, or none of them for the next message")
    try:
        facts = await find(admin, group, topic, key=key, msg_id=msg_id, offset=offset)
    except TopicRouteError:
        facts = None
    answer = _no_topic(topic) if facts is None else explain(facts)
    message = None if facts is None else facts.message
    data = {
        "group": group,
        "topic": topic,
        "outcome": answer.outcome,
        "sentences": answer.sentences,
        "advice": answer.advice,
        "msgId": None if message is None else message.uniq_key,
        "brokerName": facts.broker if facts else "",
        "queueId": facts.queue.queue_id if facts and facts.queue else -1,
        "queueOffset": facts.offset if facts else -1,
    }
    return Report(data, [*answer.sentences, "", f"What to do: {answer.advice}"])


def _no_topic(topic: str) -> Answer:
    text = f"Topic {topic} has no route: no registered broker has it."
    return Answer(Outcome.NO_TOPIC, [text], f"mqadmin doctor -t {topic} names the cause")


async def find(
    admin: AdminClient, group: str, topic: str, *, key: str | None, msg_id: str | None, offset: str | None
) -> Facts:
    """Collect what is known of a message and a group.

    Raises:
        TopicRouteError: no name server knows the topic.
        typer.BadParameter: ``offset`` is malformed, or names a queue that does not exist.
    """
    facts = Facts(group, topic)
    route = await admin.examine_topic_route_info(topic)
    ends = {
        queue: (each.min_offset, each.max_offset)
        for queue, each in (await admin.examine_topic_stats(topic)).offset_table.items()
    }
    try:
        stats = await admin.examine_consume_stats(group, topic, topic)
    except (BrokerResponseError, TopicRouteError):
        progress = {}
    else:
        progress, facts.consume_tps = stats.offset_table, stats.consume_tps
    if key is not None or msg_id is not None:
        facts.wanted = f"id {msg_id}" if msg_id is not None else f"key {key}"
        facts.message = await _by_key_or_id(admin, topic, key, msg_id)
        if facts.message is not None:
            names = await admin.broker_names_at(facts.message.store_host_text)
            own = [queue for queue in ends if queue.queue_id == facts.message.queue_id]
            # Behind another address of the broker its name is not known, but one broker can be meant only.
            named = [queue for queue in own if queue.broker_name in names] or own[:1]
            facts.queue = named[0] if named else None
            facts.offset = facts.message.queue_offset
    elif offset is not None:
        facts.queue, facts.offset = _at_offset(offset, sorted(ends))
    else:
        facts.queue, facts.offset = _next(ends, progress)
    if facts.queue is None:
        return facts
    facts.bounds = ends[facts.queue]
    facts.progress = progress.get(facts.queue)
    await _add_broker(admin, facts, route.broker_datas)
    await _add_clients(admin, facts)
    if facts.message is not None and facts.message.uniq_key:
        await _add_copies(admin, facts, facts.message.uniq_key)
    return facts


async def _by_key_or_id(admin: AdminClient, topic: str, key: str | None, msg_id: str | None) -> MessageExt | None:
    if msg_id is None:
        found = await admin.query_message(topic, key or "")
        return found[-1] if found else None
    try:
        return await admin.find_message(topic, msg_id)
    except (ClientError, BrokerResponseError):
        return None


def _at_offset(text: str, queues: list[MessageQueue]) -> tuple[MessageQueue, int]:
    broker, _, rest = text.rpartition(":")[0].rpartition(":")
    offset = text.rpartition(":")[2]
    if not (rest.isdigit() and offset.isdigit()):
        raise typer.BadParameter(f"{text!r} is not QUEUE:OFFSET or BROKER:QUEUE:OFFSET, such as 3:1024")
    found = [queue for queue in queues if queue.queue_id == int(rest) and broker in {"", queue.broker_name}]
    if len(found) == 1:
        return found[0], int(offset)
    known = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
    fault = "is on several brokers; give BROKER:QUEUE:OFFSET" if found else "does not exist"
    raise typer.BadParameter(f"queue {rest} {fault}; the topic has {known}")


def _next(
    ends: dict[MessageQueue, tuple[int, int]], progress: dict[MessageQueue, OffsetWrapper]
) -> tuple[MessageQueue | None, int]:
    """Return the next message of the queue that is furthest behind, or no queue if the group has consumed all."""
    begins = {
        queue: max(first, progress[queue].consumer_offset if queue in progress else first)
        for queue, (first, _) in ends.items()
    }
    behind = [queue for queue in ends if ends[queue][1] > begins[queue]]
    if not behind:
        return None, -1
    most = max(behind, key=lambda queue: ends[queue][1] - begins[queue])
    return most, begins[most]


async def _add_broker(admin: AdminClient, facts: Facts, brokers: list[BrokerData]) -> None:
    """Add what the broker of the queue says: the message, the group, and what is forbidden to it."""
    queue = facts.queue
    assert queue is not None
    facts.broker = queue.broker_name
    addresses = addresses_of([data for data in brokers if data.broker_name == queue.broker_name])
    if not addresses:
        return
    facts.address = addresses[0]
    groups = await admin.get_all_subscription_group(facts.address)
    facts.config = groups.subscription_group_table.get(facts.group)
    forbidden = groups.forbidden_table.get(facts.group, {}).get(facts.topic, 0)
    facts.forbidden = bool(forbidden & 1 << INDEX_PERM_READ)
    if facts.message is None and facts.bounds[0] <= facts.offset < facts.bounds[1]:
        facts.message = await admin.message_at(ReadableQueue(queue, facts.address), facts.offset)


async def _add_clients(admin: AdminClient, facts: Facts) -> None:
    """Add the clients of the group, and which of them consumes the queue."""
    try:
        facts.clients = await admin.examine_consumer_connection_info(facts.group)
    except BrokerResponseError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return
    except TopicRouteError:
        return  # a group without a retry topic never had a client
    answered = 0
    for client in facts.clients.connection_set:
        try:
            owned = await admin.assigned_queues(facts.group, client.client_id)
        except RocketBrokerError:
            continue  # it may be busy or old; whether all have answered is noted
        answered += 1
        if facts.queue in owned:
            facts.owner = client.client_id
    facts.are_owners_known = answered == len(facts.clients.connection_set)


async def _add_copies(admin: AdminClient, facts: Facts, unique_id: str) -> None:
    """Add the copies for retries and the traces of the message."""

    async def copies(topic: str) -> list[MessageExt]:
        try:
            return await admin.query_message(topic, unique_id, index_type="U")
        except (BrokerResponseError, TopicRouteError):
            return []

    retry_topic = RETRY_GROUP_TOPIC_PREFIX + facts.group
    delayed = [
        each for each in await copies(RMQ_SYS_SCHEDULE_TOPIC) if each.properties.get("REAL_TOPIC") == retry_topic
    ]
    facts.copies = Copies(delayed, await copies(retry_topic), await copies(DLQ_GROUP_TOPIC_PREFIX + facts.group))
    try:
        found = await admin.query_message(RMQ_SYS_TRACE_TOPIC, unique_id)
    except (BrokerResponseError, TopicRouteError):
        return
    traces = [trace for each in found for trace in decode_traces(each.body.decode(errors="replace"))]
    # Only newer clients name the group.
    facts.traces = [
        trace
        for trace in traces
        if isinstance(trace, SubAfterTrace) and trace.msg_id == unique_id and trace.group in {"", facts.group}
    ]


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
    status = f"mqadmin topicStatus -t {facts.topic}"
    if facts.queue is None:
        return _without_message(facts)
    if facts.message is None:
        first, after = facts.bounds
        if facts.offset < first:
            text = f"Offset {facts.offset:,} of {place} has expired: the queue begins at {first:,}."
            return Answer(
                Outcome.EXPIRED, [text], "raise fileReservedTime if messages must be kept longer; this one is gone"
            )
        text = f"Nothing is stored at offset {facts.offset:,} of {place}: the queue ends at {after:,}."
        return Answer(Outcome.NOT_FOUND, [text], f"look at the ends of the queues: {status}")
    message = facts.message
    stored = human_millis(message.store_timestamp)
    sentences = [f"Stored: {place} has it at offset {facts.offset:,} since {stored}, sent by {message.born_host_text}."]
    tags = f"tag {message.tags}" if message.tags else "no tag"
    subscription = facts.clients.subscription_table.get(facts.topic) if facts.clients else None
    is_selected = subscription is None or matches(subscription, message)
    if subscription is not None:
        verb = "selects" if is_selected else "does not select"
        sentences.append(
            f"Filter: the group subscribes to {subscription.sub_string!r} ({subscription.expression_type or 'TAG'}), "
            f"which {verb} the message ({tags})."
        )
    position = facts.progress.consumer_offset if facts.progress else 0
    if facts.progress is not None:
        sentences.append(
            f"Progress: group {facts.group} has committed offset {position:,} of this queue, "
            f"{max(0, facts.bounds[1] - position):,} messages before its end."
        )
    if facts.owner:
        sentences.append(f"Owner: client {facts.owner} consumes the queue.")
    if facts.progress is not None and position > facts.offset:
        return _passed(facts, sentences, is_selected=is_selected)
    return _ahead(facts, sentences, is_selected=is_selected)


def _without_message(facts: Facts) -> Answer:
    if facts.wanted:
        text = f"Topic {facts.topic} has no message with {facts.wanted}: it was not sent, not indexed, or has expired."
        return Answer(
            Outcome.NOT_FOUND, [text], "look at what the producer got as SendResult, or for the message by --offset"
        )
    if facts.message is None:
        text = f"No such message waits: topic {facts.topic} has none for group {facts.group} that it has not consumed."
        return Answer(Outcome.CAUGHT_UP, [text], "nothing; give --key, --id or --offset to ask for one message")
    return Answer(Outcome.NOT_FOUND, ["The queue of the message is in no route."], "mqadmin doctor names the cause")


def _passed(facts: Facts, sentences: list[str], *, is_selected: bool) -> Answer:
    """Explain a message that the group has gone past: consumed, filtered, retried, or dead."""
    group, copies = facts.group, facts.copies
    at = facts.message.store_timestamp if facts.message else 0
    for trace in facts.traces:
        result = "with success" if trace.success else "without success"
        sentences.append(f"Trace: consumed {result} at {human_millis(trace.time_ms)} in {trace.cost_ms:,} ms.")
    if copies.dead:
        times = max(each.reconsume_times for each in copies.dead)
        sentences.append(
            f"Retries: it failed {times:,} times, and lies in the dead-letter queue {DLQ_GROUP_TOPIC_PREFIX}{group} "
            f"since {human_millis(copies.dead[-1].store_timestamp)}."
        )
        return Answer(
            Outcome.DEAD_LETTER, sentences, f"mend the consumer, then send it again: mqadmin resendDlq {group}"
        )
    if copies.retried or copies.delayed:
        times = max(each.reconsume_times for each in [*copies.retried, *copies.delayed])
        newest = max([*copies.retried, *copies.delayed], key=lambda each: each.store_timestamp)
        held = (
            f"waits for its delay since {human_millis(newest.store_timestamp)}"
            if newest in copies.delayed
            else (f"was put into {RETRY_GROUP_TOPIC_PREFIX}{group} at {human_millis(newest.store_timestamp)}")
        )
        # The client may set another limit than the group has.
        most = newest.properties.get("MAX_RECONSUME_TIMES") or (facts.config.retry_max_times if facts.config else 16)
        sentences.append(f"Retries: {times:,} of at most {most}; the last {held}.")
        return Answer(
            Outcome.RETRYING,
            sentences,
            f"find the error in the logs of the consumer; the progress of retries: mqadmin consumerProgress -g {group}",
        )
    if not is_selected:
        return Answer(
            Outcome.FILTERED,
            [*sentences, "The group went past it, since its filter does not select it."],
            "correct the tag of the message or the expression of the consumer, then read it again: "
            f"mqadmin resetOffsetByTime -g {group} -t {facts.topic} -s {at}",
        )
    return Answer(
        Outcome.CONSUMED,
        [*sentences, "The group has consumed it: its offset lies before the committed one, and no retry is left."],
        f"nothing; to consume it again: mqadmin resetOffsetByTime -g {group} -t {facts.topic} -s {at}",
    )


def _ahead(facts: Facts, sentences: list[str], *, is_selected: bool) -> Answer:
    """Explain a message that the group has still to reach."""
    group, topic = facts.group, facts.topic
    position = facts.progress.consumer_offset if facts.progress else facts.bounds[0]
    before = facts.offset - max(position, facts.bounds[0])
    if facts.config is not None and not facts.config.consume_enable:
        return Answer(
            Outcome.SUSPENDED,
            [*sentences, f"Group {group} is suspended: consumeEnable is false at broker {facts.broker}."],
            f"mqadmin updateSubGroup -b {facts.address} -g {group} -s true",
        )
    if facts.forbidden:
        return Answer(
            Outcome.FORBIDDEN,
            [*sentences, f"Broker {facts.broker} forbids group {group} to read topic {topic}."],
            "allow it by UPDATE_AND_GET_GROUP_FORBIDDEN (update_and_get_group_read_forbidden of the admin client, "
            "readable=True)",
        )
    if facts.clients is None or not facts.clients.connection_set:
        known = "" if facts.config else ", and no broker knows the group"
        return Answer(
            Outcome.NO_CLIENT if facts.config else Outcome.NO_GROUP,
            [*sentences, f"No client of group {group} is connected{known}."],
            f"start a consumer of group {group} that subscribes to {topic}",
        )
    if topic not in facts.clients.subscription_table:
        has = ", ".join(sorted(facts.clients.subscription_table))
        return Answer(
            Outcome.NOT_SUBSCRIBED,
            [*sentences, f"The clients of group {group} do not subscribe to {topic}, but to {has}."],
            f"subscribe to {topic}, the same in all clients of the group",
        )
    if facts.progress is not None and facts.progress.pop_in_flight:
        return Answer(
            Outcome.IN_FLIGHT,
            [*sentences, f"{facts.progress.pop_in_flight:,} messages of the queue are popped and not acknowledged."],
            f"wait until they are acknowledged or return: mqadmin popStatus -g {group}",
        )
    if (
        not facts.owner
        and facts.are_owners_known
        and facts.progress is not None
        and facts.progress.pop_in_flight is None
    ):
        return Answer(
            Outcome.NO_OWNER,
            [*sentences, "No client consumes this queue."],
            f"mqadmin doctor -g {group} names the cause",
        )
    if not is_selected:
        return Answer(
            Outcome.FILTERED,
            [*sentences, "The group will go past it, since its filter does not select it."],
            "correct the tag of the message or the expression of the consumer",
        )
    rate = f"; the group consumes {facts.consume_tps:.1f} a second" if facts.consume_tps else ""
    return Answer(
        Outcome.WAITING,
        [*sentences, f"It waits for its turn: {before:,} messages of the queue come before it{rate}."],
        f"if this number does not fall, look for a handler that hangs: mqadmin consumerStatus -g {group}",
    )

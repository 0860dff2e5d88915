"""``startMonitoring``: reports on all consumer groups at an interval (org.apache.rocketmq.tools.monitor)."""

import asyncio
import sys
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, sub_command, with_hint
from rocketbroker.app.mqadmin.group_names import GroupNames
from rocketbroker.app.mqadmin.groups import subscriptions_of
from rocketbroker.app.terminal import say, say_json
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ConsumerNotOnlineError, TopicRouteError
from rocketbroker.codec.remoting.bodies.client import ConsumerRunningInfo, ConsumeType
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RocketBrokerError

# MonitorConfig.roundInterval.
_ROUND_S = 60
_STUCK_MS = 60_000
_PREFIX = "[MONITOR] "
_RULE = "========================================="


class UndoneMessages(msgspec.Struct, rename="camel"):
    """Messages of a topic that a group has not consumed; the delay in ms is that of the oldest queue."""

    consumer_group: str
    topic: str
    undone_msgs_total: int
    undone_msgs_single_mq: int = msgspec.field(name="undoneMsgsSingleMQ")
    undone_msgs_delay_time_mills: int


class Round(msgspec.Struct, rename="camel"):
    """A round of the monitor; ``notices`` are what a person should look at."""

    time: int
    undone: list[UndoneMessages]
    notices: list[str]


@sub_command("startMonitoring", "Report lag and stuck clients of all groups, each minute.")
async def start_monitoring(
    admin: AdminClient,
    round_interval: Annotated[
        int, typer.Option("--roundInterval", min=1, metavar="SECONDS", help="Seconds between rounds.")
    ] = _ROUND_S,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, metavar="COUNT", help="End after so many rounds; by default never.")
    ] = None,
    as_json: bool = False,
) -> Report:
    """Report what the groups with clients have not consumed, conflicting subscriptions, and queues that stand still.

    RocketMQ's tool writes the same to a log file. With --json each round is one line.
    """
    done = 0
    while True:
        found = await monitor_round(admin)
        if as_json:
            say_json(found)
        else:
            say(f"{_PREFIX}{_RULE}beginRound")
            for each in found.undone:
                fields = ", ".join(f"{name}={value}" for name, value in msgspec.to_builtins(each).items())
                say(f"{_PREFIX}reportUndoneMsgs: UndoneMsgs [{fields}]")
            for notice in found.notices:
                say(f"{_PREFIX} [NOTIFY] {notice}")
            say(f"{_PREFIX}{_RULE}endRound")
        sys.stdout.flush()
        done += 1
        if done == rounds:
            return Report(None, [])
        await asyncio.sleep(round_interval)


async def monitor_round(admin: AdminClient) -> Round:
    """Look at all groups once. A group that cannot be asked becomes a notice."""
    now = SystemClock().time_ms()
    found = Round(now, [], [])
    for group in await GroupNames(admin).of(await admin.fetch_all_topic_list()):
        try:
            await _look_at(admin, group, found)
        except (ConsumerNotOnlineError, TopicRouteError):
            continue  # without clients, or deleted since the list was fetched
        except RocketBrokerError as error:
            found.notices.append(f"ConsumerGroup: {group}, not asked: {with_hint(error)}")
    return found


async def _look_at(admin: AdminClient, group: str, found: Round) -> None:
    clients, conflict = await admin.examine_consumers(group)
    stats = await admin.examine_consume_stats(group)
    found.undone += undone_messages(group, stats, found.time)
    infos: dict[str, ConsumerRunningInfo] = {}
    for client in sorted(clients.connection_set, key=lambda each: each.client_id):
        try:
            infos[client.client_id] = await admin.get_consumer_running_info(group, client.client_id)
        except RocketBrokerError as error:
            found.notices.append(f"ConsumerGroup: {group}, ClientId: {client.client_id}, {with_hint(error)}")
    known = [subscriptions_of(info) for info in infos.values() if info.subscription_set is not None]
    if conflict or any(each != known[0] for each in known):
        found.notices.append(f"ConsumerGroup: {group}, Subscription different{': ' if conflict else ''}{conflict}")
    for client_id, info in infos.items():
        notices = stuck_queues(info, found.time)
        found.notices += [f"ConsumerGroup: {group}, ClientId: {client_id}, {each}" for each in notices]


def undone_messages(group: str, stats: ConsumeStats, now_ms: int) -> list[UndoneMessages]:
    """Return what a group has not consumed of each topic; the delay counts from its last consumed message."""
    by_topic: dict[str, list[OffsetWrapper]] = {}
    for queue, offsets in stats.offset_table.items():
        by_topic.setdefault(queue.topic, []).append(offsets)
    rows = []
    for topic, queues in sorted(by_topic.items()):
        lags = [each.broker_offset - each.consumer_offset for each in queues]
        delays = [
            now_ms - each.last_timestamp
            for each, lag in zip(queues, lags, strict=True)
            if lag > 0 and each.last_timestamp > 0
        ]
        total = sum(max(lag, 0) for lag in lags)
        rows.append(UndoneMessages(group, topic, total, max([*lags, 0]), max([*delays, 0])))
    return rows


def stuck_queues(info: ConsumerRunningInfo, now_ms: int) -> list[str]:
    """Return the queues of a push consumer that stand still (ConsumerRunningInfo.analyzeProcessQueue)."""
    if info.properties.get("PROP_CONSUME_TYPE") != ConsumeType.CONSUME_PASSIVELY:
        return []
    orderly = info.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
    found = []
    for queue, state in sorted(info.mq_table.items()):
        shown = f"{queue.topic} {queue.broker_name} {queue.queue_id}"
        if orderly and not state.locked:
            found.append(f"{shown} can't lock for a while, {now_ms - state.last_lock_timestamp}ms")
        elif orderly and state.dropped and state.try_unlock_times > 0:
            found.append(f"{shown} unlock {state.try_unlock_times} times, still failed")
        elif not orderly and state.cached_msg_count > 0 and now_ms - state.last_consume_timestamp > _STUCK_MS:
            stuck_ms = now_ms - state.last_consume_timestamp
            found.append(f"{shown} can't consume for a while, maybe blocked, {stuck_ms}ms")
    return found

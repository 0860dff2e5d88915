"""Sub-commands about consumer groups (org.apache.rocketmq.tools.command.consumer)."""

from collections.abc import Collection, Sequence
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import (
    ATTRIBUTES_HELP,
    OnBroker,
    OnCluster,
    Report,
    RouteCluster,
    TrueFalse,
    ask_each,
    chosen_masters,
    failure_lines,
    java_text,
    parse_attributes,
    sub_command,
)
from rocketbroker.app.mqadmin.group_names import GroupNames
from rocketbroker.app.mqadmin.many import BrokerFailure, missing_brokers
from rocketbroker.app.mqadmin.running_info import running_info, running_info_lines
from rocketbroker.app.terminal import Column, Table
from rocketbroker.app.times import human_seconds
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.admin_connection import addresses_of
from rocketbroker.client.admin.cluster_admin import brokers_of
from rocketbroker.client.core.errors import GroupNotConsumedError, TopicRouteError
from rocketbroker.client.core.requests import version_desc
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.pop_info import normal_topic
from rocketbroker.codec.message.topic_validator import (
    RETRY_GROUP_TOPIC_PREFIX,
    validate_group,
)
from rocketbroker.codec.remoting.bodies.client import ConsumerRunningInfo, ConsumeType
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats
from rocketbroker.codec.remoting.bodies.pop import MessageRequestMode
from rocketbroker.codec.remoting.bodies.topic_config import GroupRetryPolicy, SubscriptionGroupConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError, RocketBrokerError

_SAME = "Same subscription in the same group of consumer"
_DIFFERENT = "WARN: Different subscription in the same group of consumer!!!"


class QueueRow(msgspec.Struct, rename="camel"):
    """Progress of a group in one queue; ``last_timestamp`` in ms, 0 if nothing was consumed."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    diff: int
    inflight: int
    last_timestamp: int
    client_ip: str | None = msgspec.field(default=None, name="clientIP")


class GroupRow(msgspec.Struct, rename="camel"):
    """One group: number, lowest version and kind of its clients, and its total lag at the brokers that told it."""

    group: str
    count: int
    version: str
    type: str
    model: str
    tps: float
    diff_total: int
    silent_brokers: list[BrokerFailure]
    failed_brokers: list[BrokerFailure]


@sub_command("consumerProgress", reads=True)
async def consumer_progress(
    admin: AdminClient,
    group_name: Annotated[
        str | None, typer.Option("-g", "--groupName", metavar="GROUP", help="Show each queue of this group.")
    ] = None,
    topic_name: Annotated[
        str | None, typer.Option("-t", "--topicName", metavar="TOPIC", help="Show this topic only; needs -g.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--cluster",
            metavar="NAME",
            help="Show the groups of this cluster; with -g, find an LMQ by the route of this cluster or parent topic.",
        ),
    ] = None,
    show_client_ip: Annotated[
        TrueFalse, typer.Option("-s", "--showClientIP", help="Show the client that owns each queue; needs -g.")
    ] = TrueFalse.false,
) -> Report:
    """Show the progress and lag of consumer groups."""
    if group_name is None:
        if topic_name is not None or show_client_ip.is_true:
            raise typer.BadParameter("-t and -s need -g (the group); without it, one row is printed for each group")
        return await _progress_of_all(admin, cluster)
    return await progress_of_group(admin, group_name, topic_name, cluster, show_client_ip.is_true)


async def progress_of_group(
    admin: AdminClient, group: str, topic: str | None, cluster: str | None, show_client_ip: bool
) -> Report:
    """Return the progress of a group in each queue of the brokers that tell it; the others are failures.

    A group that exists and has neither consumers nor offsets has no queues; the report says so if all brokers answer.
    """
    errors: dict[str, RocketBrokerError] = {}
    admin.ask_silent_servers_once()
    unused = ""
    try:
        stats = await admin.examine_consume_stats(group, topic, cluster, failures=errors)
    except GroupNotConsumedError as error:
        stats, unused = ConsumeStats(), f"no offsets: {error}"
    owners = await _owners(admin, group) if show_client_ip else {}
    missing = missing_brokers(errors)
    rows = [
        QueueRow(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            offsets.broker_offset,
            offsets.consumer_offset,
            offsets.broker_offset - offsets.consumer_offset,
            offsets.pull_offset - offsets.consumer_offset,
            offsets.last_timestamp,
            owners.get(queue),
        )
        for queue, offsets in sorted(stats.offset_table.items())
    ]
    diff, inflight = sum(row.diff for row in rows), sum(row.inflight for row in rows)
    data = {
        "group": group,
        "queues": rows,
        "consumeTps": stats.consume_tps,
        "diffTotal": diff,
        "inflightTotal": inflight,
        "silentBrokers": missing.silent,
        "failedBrokers": missing.failed,
    }
    lines = [
        unused,
        f"Consume TPS: {stats.consume_tps:.2f}",
        f"Consume Diff Total: {diff}",
        f"Consume Inflight Total: {inflight}",
    ]
    return Report(data, [group_table(rows, show_client_ip, missing.rows), *lines], failure_lines(errors))


class PopRow(msgspec.Struct, rename="camel"):
    """Pops of a group in one queue; ``next_return`` in ms, 0 if nothing is in flight."""

    topic: str
    broker_name: str
    queue_id: int
    waiting: int
    in_flight: int
    next_return: int


@sub_command("popStatus", reads=True)
async def pop_status(
    admin: AdminClient,
    group_name: Annotated[str, typer.Option("-g", "--groupName", metavar="GROUP", help="Group to show.")],
    topic_name: Annotated[
        str | None, typer.Option("-t", "--topicName", metavar="TOPIC", help="Show this topic and its retry topic only.")
    ] = None,
    cluster: RouteCluster = None,
) -> Report:
    """Show the messages that a group has popped and not acknowledged, by queue."""
    stats = await admin.examine_consume_stats(group_name, None, cluster or topic_name)
    rows = [
        PopRow(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            offsets.broker_offset - offsets.consumer_offset if offsets.pop_waiting is None else offsets.pop_waiting,
            offsets.pop_in_flight,
            offsets.pop_revive_time or 0,
        )
        for queue, offsets in sorted(stats.offset_table.items())
        if offsets.pop_in_flight is not None and topic_name in {None, normal_topic(queue.topic, group_name)}
    ]
    titles = ("#Topic", "#Broker Name", "#QID", "#Waiting", "#Inflight", "#Next Return")
    cells = [
        [
            row.topic,
            row.broker_name,
            str(row.queue_id),
            str(row.waiting),
            str(row.in_flight),
            human_seconds(row.next_return),
        ]
        for row in rows
    ]
    none = [] if rows else [f"group {group_name} has popped nothing at a broker that reports it"]
    return Report({"group": group_name, "queues": rows}, [Table([*map(Column, titles)], cells), *none])


async def _owners(admin: AdminClient, group: str) -> dict[MessageQueue, str]:
    """Return the client address of each assigned queue, as reported by the clients; empty if none is online."""
    owners = {}
    try:
        connections = await admin.examine_consumer_connection_info(group)
    except BrokerResponseError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return {}
        raise
    except TopicRouteError:
        return {}  # it has offsets, and no retry topic by which its clients would be found
    for connection in connections.connection_set:
        for queue in await admin.assigned_queues(group, connection.client_id):
            owners[queue] = connection.client_id.partition("@")[0]
    return owners


def group_table(rows: list[QueueRow], show_client_ip: bool, missing: Sequence[BrokerFailure] = ()) -> Table:
    """Return the table of a group: a row for each queue, and one of dashes for each broker that told nothing."""
    titles = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    titles += ["#Client IP"] * show_client_ip + ["#Diff", "#Inflight", "#LastTime"]
    cells = []
    for row in rows:
        cell = [row.topic, row.broker_name, str(row.queue_id), str(row.broker_offset), str(row.consumer_offset)]
        cell += [row.client_ip or "N/A"] * show_client_ip
        cells.append([*cell, str(row.diff), str(row.inflight), human_seconds(row.last_timestamp)])
    cells += [["-", each.addr, *["-"] * (len(titles) - 2)] for each in missing]
    return Table([*map(Column, titles)], cells)


async def _progress_of_all(admin: AdminClient, cluster: str | None) -> Report:
    """Return the progress of all groups, found by their retry topics, at the brokers of one cluster or of all."""
    rows, failures = [], []
    brokers = None if cluster is None else brokers_of(await admin.examine_broker_cluster_info(), cluster)
    admin.ask_silent_servers_once()
    for group in await GroupNames(admin).of(await admin.fetch_all_topic_list()):
        try:
            row = await _group_row(admin, group, brokers)
        except TopicRouteError:
            continue  # deleted since the list was fetched
        except RocketBrokerError as error:
            failures.append(f"{group}: {error}")
            continue
        if row is None:
            continue
        rows.append(row)
        missing = [*row.silent_brokers, *row.failed_brokers]
        failures += [f"{group}, without {each.addr}: {each.error}" for each in missing]
    titles = ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    cells = [
        [row.group, str(row.count), row.version, row.type, row.model, str(int(row.tps)), str(row.diff_total)]
        for row in rows
    ]
    return Report({"groups": rows}, [Table([*map(Column, titles)], cells)], failures)


async def _group_row(admin: AdminClient, group: str, brokers: Collection[str] | None) -> GroupRow | None:
    """Return the clients and the total lag of one group, at the named brokers or all; None if these do not have it."""
    errors: dict[str, RocketBrokerError] = {}
    addresses = None
    if brokers is not None:
        route = await admin.examine_topic_route_info(RETRY_GROUP_TOPIC_PREFIX + group)
        addresses = addresses_of([data for data in route.broker_datas if data.broker_name in brokers])
        if not addresses:
            return None
    stats = await admin.examine_consume_stats(group, addresses=addresses, failures=errors)
    answering = next((each for each in addresses or () if each not in errors), None)
    diff = sum(offsets.broker_offset - offsets.consumer_offset for offsets in stats.offset_table.values())
    row = GroupRow(group, 0, "OFFLINE", "", "", stats.consume_tps, diff, *missing_brokers(errors))
    try:
        clients, _ = await admin.examine_consumers(group, answering)
    except BrokerResponseError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return row
    row.count = len(clients.connection_set)
    if row.count:
        row.version = version_desc(min(connection.version for connection in clients.connection_set))
        row.type = "PULL" if clients.consume_type is ConsumeType.CONSUME_ACTIVELY else "PUSH"
        if clients.consume_type is ConsumeType.CONSUME_PASSIVELY and clients.message_model is not None:
            row.model = clients.message_model.value
    return row


class ClientRow(msgspec.Struct, rename="camel"):
    """One client and its subscriptions by topic; ``None`` if it did not answer."""

    client_id: str
    client_addr: str
    version: str
    subscriptions: dict[str, str] | None


@sub_command("consumerStatus", "Show clients of a group and their subscriptions.", reads=True)
async def consumer_status(
    admin: AdminClient,
    group: Annotated[str, typer.Option("-g", "--consumerGroup", metavar="GROUP", help="Consumer group.")],
    broker_addr: Annotated[
        str | None,
        typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Broker to ask; by default one of the group's."),
    ] = None,
    client_id: Annotated[
        str | None, typer.Option("-i", "--clientId", metavar="CLIENT_ID", help="Show all that this client reports.")
    ] = None,
    jstack: Annotated[
        bool, typer.Option("-s", "--jstack", help="With -i, show the stacks of its threads too.")
    ] = False,
) -> Report:
    """Show clients of a group and their subscriptions, or the state of one client (-i)."""
    if client_id is not None:
        info = await admin.get_consumer_running_info(group, client_id, jstack=jstack)
        return Report(running_info(group, client_id, info), running_info_lines(info))
    if jstack:
        raise typer.BadParameter("-s (stacks) needs -i (the client)")
    consumers, conflict = await admin.examine_consumers(group, broker_addr)
    rows, failures = [], []
    for client in consumers.connection_set:
        subscriptions = None
        try:
            subscriptions = subscriptions_of(await admin.get_consumer_running_info(group, client.client_id))
        except RocketBrokerError as error:
            failures.append(f"{client.client_id}: {error}")
        rows.append(ClientRow(client.client_id, client.client_addr, version_desc(client.version), subscriptions))
    known = [row.subscriptions for row in rows if row.subscriptions is not None]
    same = not conflict and all(each == known[0] for each in known)
    data = {"group": group, "clients": rows, "same": same, "conflict": conflict}
    lines = [_SAME] if same else list(filter(None, [_DIFFERENT, conflict]))
    return Report(data, [_clients_table(rows), "", *lines], failures)


def subscriptions_of(info: ConsumerRunningInfo) -> dict[str, str]:
    """Return the subscriptions of a client by topic, without that to retries.

    Raises:
        CodecError: the client does not report them.
    """
    if info.subscription_set is None:
        raise CodecError("ConsumerRunningInfo: subscriptionSet is missing")
    pairs = sorted((each.topic, each.sub_string) for each in info.subscription_set)
    return {topic: text for topic, text in pairs if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)}


def _clients_table(rows: list[ClientRow]) -> Table:
    titles = ("#Index", "#ClientId", "#ClientAddr", "#Version", "#Subscription")
    cells = [
        [str(number), row.client_id, row.client_addr, row.version, _text(row.subscriptions)]
        for number, row in enumerate(rows, 1)
    ]
    return Table([*map(Column, titles)], cells)


def _text(subscriptions: dict[str, str] | None) -> str:
    return "-" if subscriptions is None else ", ".join(f"{topic}: {text}" for topic, text in subscriptions.items())


@sub_command("setConsumeMode", "Let a group pull or pop a topic.", dry_run=True)
async def set_consume_mode(
    admin: AdminClient,
    topic_name: Annotated[str, typer.Option("-t", "--topicName", metavar="TOPIC", help="Topic.")],
    group_name: Annotated[str, typer.Option("-g", "--groupName", metavar="GROUP", help="Consumer group.")],
    mode: Annotated[MessageRequestMode, typer.Option("-m", "--mode", help="Delivery mode.")],
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
    pop_share_queue_num: Annotated[
        int,
        typer.Option(
            "-q",
            "--popShareQueueNum",
            metavar="COUNT",
            help="With POP, the number of clients whose queues each takes besides its own; 0 or less: all queues.",
        ),
    ] = 0,
) -> Report:
    """Let a group pull or pop a topic on one broker (-b) or in a cluster (-c)."""
    succeeded, failed = await ask_each(
        await chosen_masters(admin, broker_addr, cluster_name),
        lambda address: admin.set_message_request_mode(address, topic_name, group_name, mode, pop_share_queue_num),
    )
    setting = (
        f"topic[{topic_name}] group[{group_name}] consume mode[{mode.value}] popShareQueueNum[{pop_share_queue_num}]"
    )
    return Report(
        {"brokers": succeeded},
        [*(f"set consume mode to {address} success." for address in succeeded), *([setting] if succeeded else [])],
        failure_lines(failed),
    )


@sub_command("updateSubGroup", "Create or change a consumer group.", dry_run=True)
async def update_sub_group(
    admin: AdminClient,
    group_name: Annotated[str, typer.Option("-g", "--groupName", metavar="GROUP", help="Consumer group.")],
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
    consume_enable: Annotated[
        TrueFalse, typer.Option("-s", "--consumeEnable", help="Let the group consume.")
    ] = TrueFalse.true,
    consume_from_min_enable: Annotated[
        TrueFalse, typer.Option("-m", "--consumeFromMinEnable", help="Let the group begin at the first message.")
    ] = TrueFalse.false,
    consume_broadcast_enable: Annotated[
        TrueFalse, typer.Option("-d", "--consumeBroadcastEnable", help="Let the group consume as broadcasting.")
    ] = TrueFalse.false,
    consume_message_orderly: Annotated[
        TrueFalse,
        typer.Option("-o", "--consumeMessageOrderly", help="Deliver in order: FIFO topics to gRPC clients need it."),
    ] = TrueFalse.false,
    retry_queue_nums: Annotated[
        int, typer.Option("-q", "--retryQueueNums", min=0, metavar="COUNT", help="Queues of the retry topic.")
    ] = 1,
    retry_max_times: Annotated[
        int, typer.Option("-r", "--retryMaxTimes", min=-1, metavar="COUNT", help="Retries before the dead letters.")
    ] = 16,
    group_retry_policy: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--groupRetryPolicy",
            metavar="JSON",
            help='Delays of retries in ms: {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}.',
        ),
    ] = None,
    broker_id: Annotated[
        int, typer.Option("-i", "--brokerId", min=0, metavar="ID", help="Broker to consume from.")
    ] = 0,
    which_broker_when_consume_slowly: Annotated[
        int,
        typer.Option(
            "-w", "--whichBrokerWhenConsumeSlowly", min=0, metavar="ID", help="Broker to consume from while far behind."
        ),
    ] = 1,
    notify_consumer_ids_changed: Annotated[
        TrueFalse, typer.Option("-a", "--notifyConsumerIdsChanged", help="Tell clients when members come or go.")
    ] = TrueFalse.true,
    attributes: Annotated[str, typer.Option("--attributes", metavar="CHANGES", help=ATTRIBUTES_HELP)] = "",
) -> Report:
    """Create or change a group on one broker (-b) or in a cluster (-c)."""
    checked = validate_group(group_name)
    if not checked.valid:
        raise typer.BadParameter(checked.remark)
    config = SubscriptionGroupConfig(
        group_name,
        consume_enable=consume_enable.is_true,
        consume_from_min_enable=consume_from_min_enable.is_true,
        consume_broadcast_enable=consume_broadcast_enable.is_true,
        consume_message_orderly=consume_message_orderly.is_true,
        retry_queue_nums=retry_queue_nums,
        retry_max_times=retry_max_times,
        group_retry_policy=_retry_policy(group_retry_policy),
        broker_id=broker_id,
        which_broker_when_consume_slowly=which_broker_when_consume_slowly,
        notify_consumer_ids_changed_enable=notify_consumer_ids_changed.is_true,
        attributes=parse_attributes(attributes),
    )
    succeeded, failed = await ask_each(
        await chosen_masters(admin, broker_addr, cluster_name),
        lambda address: admin.create_and_update_subscription_group_config(address, config),
    )
    lines = [f"create subscription group to {address} success." for address in succeeded]
    lines += [java_text(config)] if succeeded else []
    data = {"brokers": succeeded, "subscriptionGroupConfig": msgspec.to_builtins(config)}
    return Report(data, lines, failure_lines(failed))


def _retry_policy(text: str | None) -> GroupRetryPolicy:
    if text is None:
        return GroupRetryPolicy()
    try:
        return GroupRetryPolicy.decode(text.encode())
    except CodecError as error:
        raise typer.BadParameter(f"--groupRetryPolicy: {error}") from error

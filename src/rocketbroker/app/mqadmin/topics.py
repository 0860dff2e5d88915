"""Sub-commands about topics (org.apache.rocketmq.tools.command.topic)."""

from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import (
    ATTRIBUTES_HELP,
    OnBroker,
    OnCluster,
    Report,
    RouteCluster,
    Topic,
    TrueFalse,
    ask_each,
    chosen_masters,
    failure_lines,
    java_text,
    parse_attributes,
    sub_command,
    with_hint,
)
from rocketbroker.app.mqadmin.many import missing_brokers, of_many
from rocketbroker.app.terminal import Column, Table, escaped
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.topic_and_group_admin import NAMESPACE_ORDER_TOPIC_CONFIG
from rocketbroker.client.core.errors import ClientError, InvalidMessageError, TopicRouteError
from rocketbroker.client.core.message import check_topic
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RocketBrokerError
from rocketbroker.common.queue_allocation import allocate_averagely

# The protocol has 32-bit numbers.
MOST_QUEUES = 2**31 - 1
MOST_PERM = 7
FLAG_UNIT = 0x1
FLAG_UNIT_SUB = 0x2


class TopicRow(msgspec.Struct, rename="camel"):
    """A topic with its cluster and consumer groups, or the error that kept a server from naming them."""

    cluster_name: str
    topic: str
    consumer_groups: list[str]
    error: str | None = None


@sub_command("topicList", reads=True)
async def topic_list(
    admin: AdminClient,
    cluster_model: Annotated[
        bool,
        typer.Option(
            "-c", "--clusterModel", help="Show clusters and consumer groups too; omit %RETRY% and %DLQ% topics."
        ),
    ] = False,
) -> Report:
    """List all topics."""
    topics = await admin.fetch_all_topic_list()
    if not cluster_model:
        return Report({"topics": topics}, [*map(escaped, topics)])
    shown = [topic for topic in topics if not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))]
    rows = [row for row in await of_many(shown, lambda topic: _topic_row(admin, topic)) if row is not None]
    columns = [Column("#Cluster Name"), Column("#Topic"), Column("#Consumer Group")]
    cells = [[row.cluster_name, row.topic, group] for row in rows for group in row.consumer_groups or [""]]
    failures = [f"{row.topic}: {row.error}" for row in rows if row.error]
    return Report({"topics": rows}, [Table(columns, cells)], failures)


async def _topic_row(admin: AdminClient, topic: str) -> TopicRow | None:
    """Return a topic with its groups, None if it was deleted since the list was fetched."""
    row = TopicRow("", topic, [])
    try:
        route = await admin.examine_topic_route_info(topic)
        row.cluster_name = route.broker_datas[0].cluster if route.broker_datas else ""
        row.consumer_groups = sorted(await admin.query_topic_consume_by_who(topic))
    except TopicRouteError:
        return None
    except RocketBrokerError as error:
        row.error = with_hint(error)
    return row


@sub_command("topicRoute", reads=True)
async def topic_route(
    admin: AdminClient,
    topic: Topic,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="Show a table.")] = False,
) -> Report:
    """Show the route of a topic."""
    route = await admin.examine_topic_route_info(topic)
    data = msgspec.json.decode(route.encode_standard())
    # RocketMQ's tool prints broker ids without quotes; --json prints standard JSON.
    part = route_table(route) if as_list else fastjson.dumps(fastjson.loads(route.encode()), indent="\t").decode()
    return Report(data, [part])


def route_table(route: TopicRouteData) -> Table:
    """Return the table of a route: one row for each broker with queues of the topic, then the total."""
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    titles = ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    rows = []
    for queues in sorted(route.queue_datas, key=lambda each: each.broker_name):
        broker = brokers.get(queues.broker_name)
        addresses = sorted(broker.broker_addrs.items()) if broker is not None else []
        rows.append(
            [
                broker.cluster if broker is not None else "",
                queues.broker_name,
                "{" + ", ".join(f"{broker_id}={address}" for broker_id, address in addresses) + "}",
                str(queues.read_queue_nums),
                str(queues.write_queue_nums),
                str(queues.perm),
            ]
        )
    read, write = (sum(int(row[index]) for row in rows) for index in (3, 4))
    rows.append(["Total:", str(len(rows)), "", str(read), str(write), ""])
    return Table([Column(title) for title in titles], rows)


@sub_command("updateTopic", "Create or change a topic.", dry_run=True)
async def update_topic(
    admin: AdminClient,
    topic: Topic,
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
    read_queue_nums: Annotated[
        int,
        typer.Option(
            "-r", "--readQueueNums", min=1, max=MOST_QUEUES, metavar="COUNT", help="Number of queues to read."
        ),
    ] = 8,
    write_queue_nums: Annotated[
        int,
        typer.Option(
            "-w", "--writeQueueNums", min=1, max=MOST_QUEUES, metavar="COUNT", help="Number of queues to write."
        ),
    ] = 8,
    perm: Annotated[
        int,
        typer.Option("-p", "--perm", min=0, max=MOST_PERM, metavar="PERM", help="Permission: 2 write, 4 read, 6 both."),
    ] = 6,
    order: Annotated[
        TrueFalse,
        typer.Option("-o", "--order", help="Make the topic ordered: it keeps its queues while a broker is down."),
    ] = TrueFalse.false,
    unit: Annotated[TrueFalse, typer.Option("-u", "--unit", help="Set the unit flag.")] = TrueFalse.false,
    has_unit_sub: Annotated[
        TrueFalse, typer.Option("-s", "--hasUnitSub", help="Set the flag for unit subscriptions.")
    ] = TrueFalse.false,
    attributes: Annotated[str, typer.Option("-a", "--attributes", metavar="CHANGES", help=ATTRIBUTES_HELP)] = "",
) -> Report:
    """Create or change a topic on one broker (-b) or in a cluster (-c)."""
    try:
        check_topic(topic)
    except InvalidMessageError as error:
        raise typer.BadParameter(str(error)) from error
    config = TopicConfig(
        topic,
        read_queue_nums,
        write_queue_nums,
        perm,
        topic_sys_flag=FLAG_UNIT * unit.is_true | FLAG_UNIT_SUB * has_unit_sub.is_true,
        order=order.is_true,
        attributes=parse_attributes(attributes),
    )
    addresses = await chosen_masters(admin, broker_addr, cluster_name)
    # A broker without a name is an error before anything has changed.
    names = [await admin.fetch_broker_name(address) for address in addresses] if config.order else []
    succeeded, failed = await ask_each(addresses, lambda each: admin.create_and_update_topic_config(each, config))
    lines = [f"create topic to {address} success." for address in succeeded]
    failures = failure_lines(failed)
    order_conf = None
    if config.order and failed:
        failures.append(f"the order configuration of {topic} was not set; repeat it once all brokers answer")
    elif config.order:
        wanted = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
        order_conf = await admin.create_or_update_order_conf(topic, wanted, is_cluster=broker_addr is None)
        what = "broker" if broker_addr is not None else "cluster"
        lines.append(f"set {what} orderConf. isOrder=true, orderConf=[{wanted}]")
    lines += [topic_config_text(config)] if succeeded else []
    data = {"brokers": succeeded, "orderConf": order_conf, "topicConfig": msgspec.to_builtins(config)}
    return Report(data, lines, failures)


def topic_config_text(config: TopicConfig) -> str:
    """Return a topic as RocketMQ's tools print it."""
    perm = "".join(letter if config.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    fields = {
        "topicName": config.topic_name,
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": perm,
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        "order": str(config.order).lower(),
        "attributes": java_text(config.attributes),
    }
    return f"TopicConfig [{', '.join(f'{name}={value}' for name, value in fields.items())}]"


@sub_command(
    "deleteTopic",
    "Delete a topic from brokers and name servers.",
    deletes="Delete topic {topic} and its messages from cluster {cluster}?",
    dry_run=True,
)
async def delete_topic(
    admin: AdminClient,
    topic: Topic,
    cluster: Annotated[
        str, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Delete on all masters of this cluster.")
    ],
) -> Report:
    """Delete a topic and its messages from a cluster and from the name servers.

    While a broker still has the topic, the name servers keep it, so that it can be found and deleted again.
    """
    # The brokers go first, so that none registers the topic again.
    addresses = list((await admin.fetch_master_addresses(cluster)).values())
    if not await _exists(admin, addresses, topic):
        near = get_close_matches(topic, await admin.fetch_all_topic_list(), 1)
        question = f"did you mean {near[0]}?" if near else "mqadmin topicList lists the topics"
        raise ClientError(f"there is no topic {topic!r}, and nothing was deleted; {question}")
    deleted, failed = await ask_each(addresses, lambda each: admin.delete_topic_in_broker([each], topic))
    data = {"topic": topic, "clusterName": cluster, "brokers": deleted}
    if failed or admin.without_master:
        lines = [f"delete topic [{topic}] from broker [{address}] success." for address in deleted]
        kept = f"the name servers keep topic {topic}, which not all brokers have deleted; repeat it once all answer"
        return Report(data, lines, [*failure_lines(failed), kept])
    await admin.delete_topic_in_name_server(topic, cluster)
    lines = [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]
    return Report(data, lines)


async def _exists(admin: AdminClient, addresses: list[str], topic: str) -> bool:
    """Return true if a name server or a broker knows a topic: one may have what the other has lost."""
    try:
        await admin.examine_topic_route_info(topic)
    except TopicRouteError:
        for address in addresses:
            try:
                await admin.examine_topic_config(address, topic)
            except BrokerResponseError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    continue
            return True  # also if a broker of 4.x does not know the request
        return False
    return True


class QueueRow(msgspec.Struct, rename="camel"):
    """One queue; ``last_update_timestamp`` in ms, 0 if nothing was stored."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_timestamp: int


@sub_command("topicStatus", reads=True)
async def topic_status(admin: AdminClient, topic: Topic, cluster: RouteCluster = None) -> Report:
    """Show the offsets of a topic's queues."""
    errors: dict[str, RocketBrokerError] = {}
    stats = await admin.examine_topic_stats(topic, cluster, failures=errors)
    missing = missing_brokers(errors)
    rows = [
        QueueRow(queue.broker_name, queue.queue_id, offset.min_offset, offset.max_offset, offset.last_update_timestamp)
        for queue, offset in sorted(stats.offset_table.items())
    ]
    titles = ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    cells = [
        [
            *map(str, (row.broker_name, row.queue_id, row.min_offset, row.max_offset)),
            human_millis(row.last_update_timestamp),
        ]
        for row in rows
    ]
    cells += [[each.addr, *["-"] * (len(titles) - 1)] for each in missing.rows]
    data = {
        "topic": topic,
        "queues": rows,
        "topicPutTps": stats.topic_put_tps,
        "silentBrokers": missing.silent,
        "failedBrokers": missing.failed,
    }
    lines = ["", f"Topic Put TPS: {stats.topic_put_tps}"]
    return Report(data, [Table([*map(Column, titles)], cells), *lines], failure_lines(errors))


# -- several topics, permissions, order


class TopicInFile(TopicConfig, forbid_unknown_fields=True):
    """A topic in the file of updateTopicList; fields that are missing have RocketMQ's defaults."""


def topics_in_file(path: Path) -> list[TopicConfig]:
    """Return the topics in a JSON file: a list of objects with the fields of RocketMQ's TopicConfig.

    An attribute without ``+`` or ``-`` is set, so that topics in the form of exportMetadata can be created elsewhere.

    Raises:
        typer.BadParameter: the file cannot be read, or has something else; the text says where.
    """
    try:
        topics = msgspec.json.decode(path.read_bytes(), type=list[TopicInFile])
        for topic in topics:
            check_topic(topic.topic_name)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, InvalidMessageError, UnicodeDecodeError) as error:
        raise typer.BadParameter(
            f'{path} is not a list of topics such as [{{"topicName": "T", "readQueueNums": 8}}]: {error}'
        ) from error
    if not topics:
        raise typer.BadParameter(f"{path} has no topics")
    repeated = [name for name, count in Counter(topic.topic_name for topic in topics).items() if count > 1]
    if repeated:
        raise typer.BadParameter(f"{path} has a topic more than once: {', '.join(repeated)}")
    for topic in topics:
        if min(topic.read_queue_nums, topic.write_queue_nums) < 1:
            raise typer.BadParameter(
                f"{path}: topic {topic.topic_name!r} needs readQueueNums and writeQueueNums from 1"
            )
        if not 0 <= topic.perm <= MOST_PERM:
            raise typer.BadParameter(
                f"{path}: topic {topic.topic_name!r} has perm {topic.perm}; use 2 (write), 4 (read) or 6 (both)"
            )
        topic.attributes = {
            key if key[:1] in {"+", "-"} else f"+{key}": value for key, value in topic.attributes.items()
        }
    return list(topics)


@sub_command("updateTopicList", "Create or change the topics in a file.", dry_run=True)
async def update_topic_list(
    admin: AdminClient,
    filename: Annotated[
        Path, typer.Option("-f", "--filename", metavar="FILE", help="JSON file with a list of TopicConfig.")
    ],
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
) -> Report:
    """Create or change the topics in a file, on one broker (-b) or in a cluster (-c)."""
    topics = topics_in_file(filename)
    addresses = await chosen_masters(admin, broker_addr, cluster_name)
    succeeded, failed = await ask_each(addresses, lambda address: _update_topics(admin, address, topics))
    lines = [
        f"submit batch of topic config to {address} success, please check the result later." for address in succeeded
    ]
    data = {"brokers": succeeded, "topics": [topic.topic_name for topic in topics]}
    return Report(data, lines, failure_lines(failed))


async def _update_topics(admin: AdminClient, address: str, topics: list[TopicConfig]) -> None:
    """Create or change topics on a broker; one of 4.x takes them one by one."""
    try:
        await admin.create_and_update_topic_config_list(address, topics)
    except BrokerResponseError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        for topic in topics:
            await admin.create_and_update_topic_config(address, topic)


class PermRow(msgspec.Struct, rename="camel"):
    """Permission of a topic on a broker, before and after the change."""

    addr: str
    before: int
    after: int


@sub_command("updateTopicPerm", "Change the permission of a topic.", dry_run=True)
async def update_topic_perm(
    admin: AdminClient,
    topic: Topic,
    perm: Annotated[
        int,
        typer.Option("-p", "--perm", min=0, max=MOST_PERM, metavar="PERM", help="Permission: 2 write, 4 read, 6 both."),
    ],
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
) -> Report:
    """Change the permission of a topic on one broker (-b) or in a cluster (-c), and nothing else of it."""
    rows: list[PermRow] = []
    lines: list[str] = []

    async def change(address: str) -> None:
        config = await _topic_at(admin, address, topic)
        changed = msgspec.structs.replace(config, perm=perm, attributes={})  # attributes that are not named stay
        if config.perm == perm:
            lines.append("new perm equals to the old one!")
        else:
            await admin.create_and_update_topic_config(address, changed)
            lines.append(f"update topic perm from {config.perm} to {perm} in {address} success.")
            if broker_addr is not None:
                lines.append(f"{topic_config_text(changed)}.")
        rows.append(PermRow(address, config.perm, perm))

    _, failed = await ask_each(await chosen_masters(admin, broker_addr, cluster_name), change)
    return Report({"topic": topic, "brokers": rows}, lines, failure_lines(failed))


async def _topic_at(admin: AdminClient, address: str, topic: str) -> TopicConfig:
    """Return a topic as a broker has it; from its route if the broker, of 4.x, does not tell.

    Raises:
        ClientError: the broker does not have the topic.
    """
    try:
        return await admin.examine_topic_config(address, topic)
    except BrokerResponseError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            raise ClientError(_not_here(topic)) from error
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
    name = await admin.fetch_broker_name(address)
    for queues in (await admin.examine_topic_route_info(topic)).queue_datas:
        if queues.broker_name == name:
            counts = (queues.read_queue_nums, queues.write_queue_nums)
            return TopicConfig(topic, *counts, queues.perm, topic_sys_flag=queues.topic_sys_flag)
    raise ClientError(_not_here(topic))


def _not_here(topic: str) -> str:
    return f"the broker has no topic {topic!r}; mqadmin topicRoute -t {topic} shows which brokers have it"


class OrderMethod(StrEnum):
    """Actions of updateOrderConf."""

    put = "put"
    get = "get"
    delete = "delete"


def _order_question(topic: str, method: OrderMethod, **_: object) -> str:
    return f"Delete the order configuration of topic {topic}?" if method is OrderMethod.delete else ""


@sub_command(
    "updateOrderConf",
    "Set, show or delete the order configuration of a topic.",
    deletes=_order_question,
    dry_run=True,
)
async def update_order_conf(
    admin: AdminClient,
    topic: Topic,
    method: Annotated[OrderMethod, typer.Option("-m", "--method", help="Action.")],
    order_conf: Annotated[
        str | None,
        typer.Option("-v", "--orderConf", metavar="BROKER:COUNT[;...]", help="Queues of each broker, for put."),
    ] = None,
) -> Report:
    """Set, show or delete the queues that an ordered topic keeps while a broker is down.

    With ``--json``, ``orderConf`` is the new value, the present one, or the deleted one, null if there was none.
    """
    if (method is OrderMethod.put) != (order_conf is not None):
        raise typer.BadParameter("give -v BROKER:COUNT[;...] with -m put, and only with it")
    if order_conf is not None:
        _check_order_conf(order_conf)
        await admin.create_or_update_order_conf(topic, order_conf)
        text = f"update orderConf success. topic=[{topic}], orderConf=[{order_conf}]"
    elif method is OrderMethod.get:
        order_conf = await admin.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        if order_conf is None:
            raise ClientError(f"topic {topic!r} has no order configuration; set one with -m put -v BROKER:COUNT[;...]")
        text = f"get orderConf success. topic=[{topic}], orderConf=[{escaped(order_conf)}]"
    else:
        order_conf = await admin.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        await admin.delete_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        note = "" if order_conf is not None else "; there was none"
        text = f"delete orderConf success. topic=[{topic}]{note}"
    return Report({"topic": topic, "method": method.value, "orderConf": order_conf}, [text])


def _check_order_conf(text: str) -> None:
    """Raise BadParameter if a part of an order configuration is not ``broker:count``."""
    for part in text.split(";"):
        name, _, count = part.rpartition(":")
        if not (name and name.isprintable() and count.isascii() and count.isdigit() and int(count) > 0):
            raise typer.BadParameter(f"{part!r} is not BROKER:COUNT; an order configuration is broker-a:4;broker-b:4")


# -- where a topic is, and who would consume it


@sub_command("topicClusterList", reads=True)
async def topic_cluster_list(admin: AdminClient, topic: Topic) -> Report:
    """List the clusters that have a topic."""
    clusters = await admin.get_topic_cluster_list(topic)
    return Report({"topic": topic, "clusters": clusters}, [*map(escaped, clusters)])


@sub_command("allocateMQ", reads=True)
async def allocate_mq(
    admin: AdminClient,
    topic: Topic,
    ip_list: Annotated[
        str, typer.Option("-i", "--ipList", metavar="IP[,...]", help="Addresses of the consumers, joined by commas.")
    ],
) -> Report:
    """Show how the queues of a topic would be shared among consumers."""
    members = [each.strip() for each in ip_list.split(",") if each.strip()]
    if not members or len(set(members)) < len(members):
        raise typer.BadParameter("give different addresses of consumers, joined by commas: -i 192.0.2.1,192.0.2.2")
    route = await admin.examine_topic_route_info(topic)
    queues = [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda each: each.broker_name)
        for queue_id in range(data.read_queue_nums)
    ]
    result: Mapping[str, list[MessageQueue]] = {
        member: allocate_averagely(member, queues, sorted(members)) for member in members
    }
    data = {"result": msgspec.to_builtins(result)}
    return Report(data, [fastjson.dumps(data).decode()])

"""``mqadmin updateTopic`` (org.apache.rocketmq.tools.command.topic.UpdateTopicSubCommand)."""

from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.running import AsJson, NamesrvAddr, Topic, TrueFalse, run
from rocketbroker.app.terminal import Report
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.message import check_topic
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig

FLAG_UNIT = 0x1
FLAG_UNIT_SUB = 0x2


def command(  # noqa: PLR0913, PLR0917 - one argument for each option of RocketMQ's
    topic: Topic,
    namesrv_addr: NamesrvAddr = None,
    broker_addr: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Apply on this broker only.")
    ] = None,
    cluster_name: Annotated[
        str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Apply on all masters of this cluster.")
    ] = None,
    read_queue_nums: Annotated[
        int, typer.Option("-r", "--readQueueNums", min=1, metavar="COUNT", help="Number of queues to read.")
    ] = 8,
    write_queue_nums: Annotated[
        int, typer.Option("-w", "--writeQueueNums", min=1, metavar="COUNT", help="Number of queues to write.")
    ] = 8,
    perm: Annotated[
        int, typer.Option("-p", "--perm", min=0, max=7, metavar="PERM", help="Permission: 2 write, 4 read, 6 both.")
    ] = 6,
    order: Annotated[
        TrueFalse,
        typer.Option("-o", "--order", help="Make the topic ordered: it keeps its queues while a broker is down."),
    ] = TrueFalse.false,
    unit: Annotated[TrueFalse, typer.Option("-u", "--unit", help="Set the unit flag.")] = TrueFalse.false,
    has_unit_sub: Annotated[
        TrueFalse, typer.Option("-s", "--hasUnitSub", help="Set the flag for unit subscriptions.")
    ] = TrueFalse.false,
    attributes: Annotated[
        str, typer.Option("-a", "--attributes", metavar="CHANGES", help="Attributes to set or remove, as +a=b,+c=d,-e.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Create or change a topic on one broker (-b) or in a cluster (-c)."""
    if (broker_addr is None) == (cluster_name is None):
        raise typer.BadParameter("give either -b (one broker) or -c (all masters of a cluster)")
    try:
        check_topic(topic.strip())
    except InvalidMessageError as error:
        raise typer.BadParameter(str(error)) from error
    config = TopicConfig(
        topic.strip(),
        read_queue_nums,
        write_queue_nums,
        perm,
        topic_sys_flag=FLAG_UNIT * unit.is_true | FLAG_UNIT_SUB * has_unit_sub.is_true,
        order=order.is_true,
        attributes=parse_attributes(attributes),
    )
    run(namesrv_addr, as_json, lambda admin: examine(admin, config, broker_addr, cluster_name))


def parse_attributes(text: str) -> dict[str, str]:
    """Return attribute changes by signed key: ``+a=b`` sets, ``-a`` removes.

    Raises:
        typer.BadParameter: a part has neither form.
    """
    changes = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if len(key) < 2 or key[0] not in "+-" or (key[0] == "+") != bool(equals and value):
            raise typer.BadParameter(
                f"{part!r} does not change an attribute; use +key=value to set one, -key to remove one"
            )
        changes[key] = value
    return changes


async def examine(admin: AdminClient, config: TopicConfig, broker: str | None, cluster: str | None) -> Report:
    """Create the topic on each broker; if it is ordered, write its order configuration too."""
    addresses = [broker] if broker is not None else list((await admin.fetch_master_addresses(str(cluster))).values())
    lines = []
    for address in addresses:
        await admin.create_and_update_topic_config(address, config)
        lines.append(f"create topic to {address} success.")
    order_conf = None
    if config.order:
        names = [await admin.fetch_broker_name(address) for address in addresses]
        order_conf = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
        await admin.create_or_update_order_conf(config.topic_name, order_conf)
        what = "broker" if broker is not None else "cluster"
        lines.append(f"set {what} orderConf. isOrder=true, orderConf=[{order_conf}]")
    lines.append(topic_config_text(config))
    data = {"brokers": addresses, "orderConf": order_conf, "topicConfig": msgspec.to_builtins(config)}
    return Report(data, lines)


def topic_config_text(config: TopicConfig) -> str:
    """Return a topic as RocketMQ's tools print it."""
    perm = "".join(letter if config.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    attributes = ", ".join(f"{key}={value}" for key, value in config.attributes.items())
    fields = {
        "topicName": config.topic_name,
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": perm,
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        "order": str(config.order).lower(),
        "attributes": f"{{{attributes}}}",
    }
    return f"TopicConfig [{', '.join(f'{name}={value}' for name, value in fields.items())}]"

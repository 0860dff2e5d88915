"""Sub-commands about connected clients (org.apache.rocketmq.tools.command.connection, .producer)."""

from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, Topic, sub_command
from rocketbroker.app.terminal import Column, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.requests import version_desc
from rocketbroker.codec.remoting.bodies.client import Connection


class ConnectionRow(msgspec.Struct, rename="camel"):
    """One client."""

    client_id: str
    client_addr: str
    language: str
    version: str


class ProducerRow(msgspec.Struct, rename="camel"):
    """One producer of a group; ``last_update_timestamp`` is its last heartbeat, in ms."""

    group: str
    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: str
    last_update_timestamp: int


class SubscriptionRow(msgspec.Struct, rename="camel"):
    """A subscription of a group."""

    topic: str
    sub_expression: str
    expression_type: str


def connection_rows(connections: list[Connection]) -> list[ConnectionRow]:
    """Return clients as rows, in the order of their ids."""
    rows = [
        ConnectionRow(each.client_id, each.client_addr, each.language, version_desc(each.version))
        for each in connections
    ]
    return sorted(rows, key=lambda row: (row.client_id, row.client_addr))


@sub_command("producer", reads=True)
async def producer(
    admin: AdminClient,
    broker: Annotated[str, typer.Option("-b", "--broker", metavar="HOST:PORT", help="Broker to ask.")],
) -> Report:
    """Show all producers that are connected to a broker."""
    table = (await admin.get_all_producer_info(broker)).data
    rows, lines = [], []
    for group, infos in sorted(table.items()):
        if not infos:
            lines.append(f"producer group ({group}) instances are empty")
        for info in infos:
            rows.append(
                ProducerRow(
                    group,
                    info.client_id,
                    info.remote_ip,
                    info.language,
                    version_desc(info.version),
                    info.last_update_timestamp,
                )
            )
            lines.append(
                f"producer group ({group}) instance : clientId={info.client_id},remoteIP={info.remote_ip}, "
                f"language={info.language}, version={info.version}, lastUpdateTimestamp={info.last_update_timestamp}"
            )
    return Report({"brokerAddr": broker, "producers": rows}, lines)


@sub_command("producerConnection", reads=True)
async def producer_connection(
    admin: AdminClient,
    producer_group: Annotated[str, typer.Option("-g", "--producerGroup", metavar="GROUP", help="Producer group.")],
    topic: Topic,
) -> Report:
    """Show the clients of a producer group."""
    found = await admin.examine_producer_connection_info(producer_group, topic)
    rows = connection_rows(found.connection_set)
    lines = [
        f"{number:04d}  {row.client_id:<32} {row.client_addr:<22} {row.language:<8} {row.version}"
        for number, row in enumerate(rows, 1)
    ]
    return Report({"group": producer_group, "topic": topic, "clients": rows}, lines)


@sub_command("consumerConnection", reads=True)
async def consumer_connection(
    admin: AdminClient,
    consumer_group: Annotated[str, typer.Option("-g", "--consumerGroup", metavar="GROUP", help="Consumer group.")],
    broker_addr: Annotated[
        str | None,
        typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Broker to ask; by default one of the group's."),
    ] = None,
) -> Report:
    """Show the clients of a consumer group, and its subscriptions."""
    found, conflict = await admin.examine_consumers(consumer_group, broker_addr)
    rows = connection_rows(found.connection_set)
    subscriptions = [
        SubscriptionRow(data.topic, data.sub_string, data.expression_type)
        for _, data in sorted(found.subscription_table.items())
    ]
    clients = Table(
        [*map(Column, ("#ClientId", "#ClientAddr", "#Language", "#Version"))],
        [[row.client_id, row.client_addr, row.language, row.version] for row in rows],
    )
    topics = Table(
        [*map(Column, ("#Topic", "#SubExpression"))], [[row.topic, row.sub_expression] for row in subscriptions]
    )
    kinds = {
        "consumeType": found.consume_type,
        "messageModel": found.message_model,
        "consumeFromWhere": found.consume_from_where,
    }
    data = {"group": consumer_group, "clients": rows, "subscriptions": subscriptions, **kinds, "conflict": conflict}
    lines = [f"{name[0].upper()}{name[1:]}: {value or 'null'}" for name, value in kinds.items()]
    warning = [f"WARN: {conflict}"] if conflict else []
    return Report(data, [clients, "", "Below is subscription:", topics, "", *lines, *warning])

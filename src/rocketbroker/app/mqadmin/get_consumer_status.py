"""``mqadmin getConsumerStatus`` (org.apache.rocketmq.tools.command.offset.GetConsumerStatusCommand)."""

from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.reset_report import QueueOffset, queue_offsets
from rocketbroker.app.mqadmin.running import AsJson, Group, NamesrvAddr, Topic, run
from rocketbroker.app.terminal import Column, Report, Table
from rocketbroker.client.admin.admin_client import AdminClient


class ClientRow(msgspec.Struct, rename="camel"):
    """Offsets of one client."""

    client_id: str
    queues: list[QueueOffset]


def command(
    group: Group,
    topic: Topic,
    namesrv_addr: NamesrvAddr = None,
    origin_client_id: Annotated[
        str, typer.Option("-i", "--originClientId", metavar="CLIENT_ID", help="Show this client only.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the offsets of a group's clients."""

    async def examine(admin: AdminClient) -> Report:
        return status_report(
            group.strip(),
            topic.strip(),
            [
                ClientRow(client_id, queue_offsets(table))
                for client_id, table in sorted(
                    (await admin.get_consume_status(topic.strip(), group.strip(), origin_client_id.strip())).items()
                )
            ],
        )

    run(namesrv_addr, as_json, examine)


def status_report(group: str, topic: str, clients: list[ClientRow]) -> Report:
    """Return the report, one row for each queue of each client."""
    cells = [
        [client.client_id, queue.broker_name, str(queue.queue_id), str(queue.offset)]
        for client in clients
        for queue in client.queues
    ]
    titles = ("#clientId", "#brokerName", "#queueId", "#offset")
    data = {"group": group, "topic": topic, "clients": clients}
    return Report(data, [Table([*map(Column, titles)], cells)])

"""``mqadmin topicRoute`` (org.apache.rocketmq.tools.command.topic.TopicRouteSubCommand)."""

from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.running import AsJson, NamesrvAddr, Topic, run
from rocketbroker.app.terminal import Column, Report, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.route import TopicRouteData


def command(
    topic: Topic,
    namesrv_addr: NamesrvAddr = None,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="Show a table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the route of a topic."""
    run(namesrv_addr, as_json, lambda admin: examine(admin, topic.strip(), as_list))


async def examine(admin: AdminClient, topic: str, as_list: bool) -> Report:
    """Return the route that the name server has."""
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

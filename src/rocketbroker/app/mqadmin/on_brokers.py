"""What the sub-commands share that have one broker, those of a cluster or all of them do something."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from rocketbroker.app.mqadmin.report import Report
from rocketbroker.app.mqadmin.running import run
from rocketbroker.client.admin_client import AdminClient
from rocketbroker.common.errors import RocketBrokerError

BrokerAddr = Annotated[str | None, typer.Option("-b", "--brokerAddr", help="This broker.")]
Cluster = Annotated[str | None, typer.Option("-c", "--cluster", help="All brokers of this cluster.")]


def run_on_brokers(
    namesrv_addr: str | None,
    as_json: bool,
    broker: str | None,
    cluster: str | None,
    ask: Callable[[AdminClient, str], Awaitable[None]],
) -> None:
    """Have brokers do it one after the other.

    Args:
        namesrv_addr: the name servers.
        as_json: whether the report is printed as JSON.
        broker: the address of the only one.
        cluster: else those of this cluster; without both, all there are.
        ask: asks a broker, by its address.
    """

    async def examine(admin: AdminClient) -> Report:
        addresses = [broker.strip()] if broker else await admin.fetch_broker_addresses(cluster and cluster.strip())
        done, failures = [], []
        for address in addresses:
            try:
                await ask(admin, address)
            except RocketBrokerError as error:
                failures.append(f"{address}: {error}")
            else:
                done.append(address)
        return Report({"brokers": done}, [f"{address} success" for address in done], failures)

    if broker and cluster:
        raise typer.BadParameter("give either -b (one broker) or -c (all brokers of a cluster), or neither (all)")
    run(namesrv_addr, as_json, examine)

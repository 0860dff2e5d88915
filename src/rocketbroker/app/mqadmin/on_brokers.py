"""Options and loop of the sub-commands that run on one broker, on those of a cluster, or on all."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from rocketbroker.app.mqadmin.running import run, with_hint
from rocketbroker.app.terminal import Report
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.common.errors import RocketBrokerError

BrokerAddr = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Run on this broker only.")
]
Cluster = Annotated[
    str | None, typer.Option("-c", "--cluster", metavar="CLUSTER", help="Run on all brokers of this cluster.")
]


def run_on_brokers(
    namesrv_addr: str | None,
    as_json: bool,
    broker: str | None,
    cluster: str | None,
    ask: Callable[[AdminClient, str], Awaitable[None]],
) -> None:
    """Send a request to one broker after the other and print which succeeded.

    Args:
        namesrv_addr: the name servers.
        as_json: true to print JSON.
        broker: address of the only broker to ask.
        cluster: cluster whose brokers to ask; without both, all brokers.
        ask: sends the request to a broker address.
    """

    async def examine(admin: AdminClient) -> Report:
        succeeded, failures = [], []
        for address in await chosen_brokers(admin, broker, cluster):
            try:
                await ask(admin, address)
            except RocketBrokerError as error:
                failures.append(f"{address}: {with_hint(error)}")
            else:
                succeeded.append(address)
        return Report({"brokers": succeeded}, [f"{address} success" for address in succeeded], failures)

    refuse_both(broker, cluster)
    run(namesrv_addr, as_json, examine)


def refuse_both(broker: str | None, cluster: str | None) -> None:
    """Raise typer.BadParameter if a broker and a cluster are given."""
    if broker and cluster:
        raise typer.BadParameter("give either -b (one broker) or -c (all brokers of a cluster), or neither (all)")


async def chosen_brokers(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """Return the address of the given broker, or those of all brokers of the cluster, or of all clusters."""
    return [broker.strip()] if broker else await admin.fetch_broker_addresses(cluster and cluster.strip())

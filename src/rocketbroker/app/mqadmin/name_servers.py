"""Sub-commands about name servers (org.apache.rocketmq.tools.command.namesrv)."""

from typing import Annotated

import typer

from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.client.admin.admin_client import AdminClient

Namespace = Annotated[str, typer.Option("-s", "--namespace", metavar="NAMESPACE", help="Namespace.")]
Key = Annotated[str, typer.Option("-k", "--key", metavar="KEY", help="Key.")]
BrokerName = Annotated[str, typer.Option("-b", "--brokerName", metavar="NAME", help="Name of the broker.")]


@sub_command("updateKvConfig", "Set a value of the KV configuration.", dry_run=True)
async def update_kv_config(
    admin: AdminClient,
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Option("-v", "--value", metavar="VALUE", help="Value.")],
) -> Report:
    """Set a value of the KV configuration at all name servers."""
    await admin.put_kv_config(namespace, key, value)
    data = {"namespace": namespace, "key": key, "value": value}
    return Report(data, ["create or update kv config to namespace success."])


@sub_command(
    "deleteKvConfig",
    "Delete a value of the KV configuration.",
    deletes="Delete {key} of the namespace {namespace} from the KV configuration?",
    dry_run=True,
)
async def delete_kv_config(admin: AdminClient, namespace: Namespace, key: Key) -> Report:
    """Delete a value of the KV configuration at all name servers; one that is missing stays missing."""
    before = await admin.get_kv_config(namespace, key)
    await admin.delete_kv_config(namespace, key)
    note = " There was none." if before is None else ""
    data = {"namespace": namespace, "key": key, "before": before}
    return Report(data, [f"delete kv config from namespace success.{note}"])


@sub_command("wipeWritePerm", "Let producers send to other brokers.", dry_run=True)
async def wipe_write_perm(admin: AdminClient, broker_name: BrokerName) -> Report:
    """Take a broker out of the routes of producers, until it registers a change or addWritePerm puts it back."""
    await admin.fetch_broker_data(broker_name)  # name servers change 0 topics of an unknown one, and answer success
    return _counts("wipe", broker_name, await admin.wipe_write_perm_of_broker(broker_name))


@sub_command("addWritePerm", "Let producers send to a broker again.", dry_run=True)
async def add_write_perm(admin: AdminClient, broker_name: BrokerName) -> Report:
    """Put a broker back into the routes of producers, after wipeWritePerm."""
    await admin.fetch_broker_data(broker_name)  # name servers change 0 topics of an unknown one, and answer success
    return _counts("add", broker_name, await admin.add_write_perm_of_broker(broker_name))


def _counts(action: str, broker_name: str, counts: dict[str, int]) -> Report:
    lines = [
        f"{action} write perm of broker[{broker_name}] in name server[{address}] OK, {count}"
        for address, count in counts.items()
    ]
    return Report({"brokerName": broker_name, "topicsByNameServer": counts}, lines)

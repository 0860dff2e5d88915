"""Sub-commands about the settings of brokers and name servers (GetBrokerConfigCommand and its neighbours)."""

from collections.abc import Awaitable, Mapping
from difflib import get_close_matches
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import (
    Report,
    TrueFalse,
    ask_each,
    chosen_brokers,
    chosen_masters,
    fill_rows,
    given_address,
    sub_command,
    with_hint,
)
from rocketbroker.app.terminal import escaped
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ClientError
from rocketbroker.common.errors import RocketBrokerError

Key = Annotated[str, typer.Option("-k", "--key", metavar="NAME", help="Setting.")]
Value = Annotated[str, typer.Option("-v", "--value", metavar="VALUE", help="New value.")]

# Place of the address of a master that is gone, in Apache's output.
NO_MASTER = "NO_MASTER"


class SettingsRow(msgspec.Struct, rename="camel"):
    """Settings of a server as text, or the error that kept it from answering; ``master_addr`` is that of a slave."""

    addr: str
    settings: Mapping[str, str]
    master_addr: str | None = None
    error: str | None = None


def settings_lines(head: str, settings: Mapping[str, str]) -> list[str]:
    """Return a heading and the settings of a server by name, and an empty line."""
    return [head, *(f"{escaped(name):50}=  {escaped(value)}" for name, value in sorted(settings.items())), ""]


# -- brokers


@sub_command("getBrokerConfig", reads=True)
async def get_broker_config(
    admin: AdminClient,
    broker_addr: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Show this broker only.")
    ] = None,
    cluster_name: Annotated[
        str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Show all brokers of this cluster.")
    ] = None,
) -> Report:
    """Show the settings of a broker (-b) or of all brokers of a cluster (-c)."""
    heads: dict[tuple[str, str | None], str] = {}
    if broker_addr is not None and cluster_name is None:
        heads[given_address(broker_addr), None] = f"============{broker_addr}============"
    elif cluster_name is not None and broker_addr is None:
        for master, slaves in (await admin.fetch_master_and_slave_addresses(cluster_name)).items():
            if master is not None:
                heads[master, None] = f"============Master: {master}============"
            for slave in slaves:
                heads[slave, master] = f"============My Master: {master or NO_MASTER}=====Slave: {slave}============"
    else:
        raise typer.BadParameter("give either -b (one broker) or -c (all brokers of a cluster)")
    rows = [SettingsRow(address, {}, master) for address, master in heads]
    lines: list[str] = []

    async def ask(row: SettingsRow) -> None:
        row.settings = await admin.get_broker_config(row.addr)
        lines.extend(settings_lines(heads[row.addr, row.master_addr], row.settings))

    failures = await fill_rows(rows, ask)
    return Report({"brokers": rows}, lines, failures)


class ChangeRow(msgspec.Struct, rename="camel"):
    """A setting of a server before and after the change, both as the server tells it, or an error.

    With an error and without a value before, the setting was not changed.
    """

    addr: str
    before: str | None = None
    after: str | None = None
    error: str | None = None


@sub_command("updateBrokerConfig", "Change a setting of brokers.", dry_run=True)
async def update_broker_config(
    admin: AdminClient,
    key: Key,
    value: Value,
    broker_addr: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Change on this broker only.")
    ] = None,
    cluster_name: Annotated[
        str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Change on masters of this cluster.")
    ] = None,
    update_all_broker: Annotated[
        TrueFalse, typer.Option("-a", "--updateAllBroker", help="With -c, change on slaves too.")
    ] = TrueFalse.false,
) -> Report:
    """Change a setting of a broker (-b) or of a cluster (-c), and show its value before and after."""
    if (broker_addr is None) == (cluster_name is None):
        raise typer.BadParameter("give either -b (one broker) or -c (a cluster)")
    if broker_addr is not None and update_all_broker.is_true:
        raise typer.BadParameter("-a belongs to -c: it adds the slaves of a cluster")
    choose = chosen_brokers if update_all_broker.is_true else chosen_masters
    addresses = await choose(admin, broker_addr, cluster_name)
    changed: dict[str, ChangeRow] = {}

    async def change(address: str) -> None:
        changed[address] = await _changed(admin, address, key, value)

    _, failed = await ask_each(addresses, change)
    changed |= {address: ChangeRow(address, error=with_hint(error)) for address, error in failed.items()}
    rows = [changed[address] for address in addresses]
    lines = [
        line
        for row in rows
        if row.before is not None
        for line in (f"update broker config success, {row.addr}", f"{key} : {_shown(row)}")
    ]
    data = {"key": key, "value": value, "brokers": rows}
    return Report(data, lines, [f"{row.addr}: {row.error}" for row in rows if row.error])


async def _changed(admin: AdminClient, address: str, key: str, value: str) -> ChangeRow:
    """Change a setting of a broker that has it: Apache's broker accepts any name in silence."""
    before = await admin.get_broker_config(address)
    check_name(key, before)
    await admin.update_broker_config(address, {key: value})
    row = ChangeRow(address, before[key])
    await _read_back(row, key, admin.get_broker_config(address))
    return row


async def _read_back(row: ChangeRow, key: str, settings: Awaitable[Mapping[str, str]]) -> None:
    """Fill in the value after a change, which is done whether or not its value can be read."""
    try:
        row.after = (await settings).get(key)
    except RocketBrokerError as error:
        row.error = f"changed, but the new value could not be read: {with_hint(error)}"


def _shown(row: ChangeRow) -> str:
    """Return the value before and after a change."""
    after = "(not read)" if row.error else str(row.after)
    return f"{escaped(str(row.before))} -> {escaped(after)}"


def check_name(key: str, settings: Mapping[str, str]) -> None:
    """Check that a server has a setting.

    Raises:
        ClientError: it has none of that name; the text names one that is spelt alike.
    """
    if key not in settings:
        near = get_close_matches(key, settings, 1)
        hint = f"did you mean {near[0]}?" if near else "getBrokerConfig and getNamesrvConfig list the settings"
        raise ClientError(f"there is no setting {key!r}; {hint}")


# -- name servers


@sub_command("getNamesrvConfig", reads=True)
async def get_namesrv_config(admin: AdminClient) -> Report:
    """Show the settings of the name servers."""
    rows = [SettingsRow(address, {}) for address in await admin.name_server_addresses()]
    lines: list[str] = []

    async def ask(row: SettingsRow) -> None:
        row.settings = await _settings_at(admin, row.addr)
        lines.extend(settings_lines(f"============{row.addr}============", row.settings))

    failures = await fill_rows(rows, ask)
    return Report({"nameServers": rows}, lines, failures)


@sub_command("updateNamesrvConfig", "Change a setting of all name servers.", dry_run=True)
async def update_namesrv_config(admin: AdminClient, key: Key, value: Value) -> Report:
    """Change a setting of all name servers, and show its value before and after."""
    before = await admin.get_name_server_config()
    for address, settings in before.items():
        try:
            check_name(key, settings)
        except ClientError as error:
            raise ClientError(f"{address}: {error}") from error
    await admin.update_name_server_config({key: value})
    rows = [ChangeRow(address, settings[key]) for address, settings in before.items()]
    for row in rows:
        await _read_back(row, key, _settings_at(admin, row.addr))
    lines = [f"update name server config success![{', '.join(before)}]", f"{key} : {value}"]
    lines += [f"{row.addr} {key} : {_shown(row)}" for row in rows]
    data = {"key": key, "value": value, "nameServers": rows}
    return Report(data, lines, [f"{row.addr}: {row.error}" for row in rows if row.error])


async def _settings_at(admin: AdminClient, name_server: str) -> Mapping[str, str]:
    return (await admin.get_name_server_config(name_server))[name_server]

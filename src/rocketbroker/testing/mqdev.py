"""The command ``mqdev``: name server and broker in one process, for development.

mqdev [--port PORT] [--broker-port PORT] [--host IP] [--advertise IP] [--store DIR | --ephemeral]
      [--set KEY=VALUE] [--grpc] [--tls] [--acl] [--control-port PORT] [--ready-file FILE]
      [--layout LAYOUT | --demo [--messages COUNT]]
"""

import os
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketbroker.app.command_line import Version, new_app
from rocketbroker.app.launch.throw_away_tls import ThrowAwayTls
from rocketbroker.app.logging_setup import LEVEL_VARIABLE, set_up_logging
from rocketbroker.app.server_process import run, serve, spare_the_collector
from rocketbroker.common.config.hosts import LOOPBACK, host_address
from rocketbroker.common.config.load import broker_settings_of
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.proxy_config import GRPC_PORT, grpc_properties
from rocketbroker.common.config.transport_config import BROKER_PORT, NAMESRV_PORT, TransportConfig
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.open_files import raise_open_file_limit
from rocketbroker.common.private_files import write_private

if TYPE_CHECKING:
    from rocketbroker.app.launch.dev_server import DevServer
    from rocketbroker.app.launch.first_users import FirstUsers
    from rocketbroker.testing.control_server import ControlServer
    from rocketbroker.testing.rocketmq_server import RocketMQServer

DEMO_MESSAGES = 10_000

app = new_app()


def _port(name: str, text: str) -> Any:
    return typer.Option(name, min=0, max=65535, metavar="PORT", help=text)


def _address(text: str) -> str:
    try:
        return str(ip_address(LOOPBACK if text == "localhost" else text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an IP address; give one such as {LOOPBACK}") from None


def _reachable(text: str) -> str:
    """Return the address of a host, for the message of a command."""
    try:
        return host_address(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def mqdev(  # noqa: PLR0913, PLR0917 - one argument for each option
    port: Annotated[
        int | None, _port("--port", f"Port of the name server (default {NAMESRV_PORT}); 0 picks a free one.")
    ] = None,
    broker_port: Annotated[
        int | None,
        _port(
            "--broker-port",
            f"Port of the broker (default {BROKER_PORT}); 0 picks a free one. Its VIP port is 2 lower.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", parser=_address, metavar="IP", help="Address to listen on; 0.0.0.0 means all.")
    ] = LOOPBACK,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            parser=_reachable,
            metavar="HOST",
            envvar="MQ_ADVERTISED_HOST",
            help="Address that clients connect to, such as the host's when mqdev runs in a container.",
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="DIR", help="Folder that keeps the data for the next start.")
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file",
            metavar="FILE",
            help="File to write NAMESRV_ADDR=HOST:PORT to when the servers are ready; removed at exit. With --grpc "
            "it also has ENDPOINTS, with --tls TLS_CA, with --acl ACCESS_KEY and SECRET_KEY of a client and, with "
            "ADMIN_ before them, of an administrator, with --control-port CONTROL_URL.",
        ),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="For test suites: free ports, and a store that is removed at exit.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting of the brokers by RocketMQ's name, such as flushDiskType=SYNC_FLUSH; can be repeated.",
        ),
    ] = None,
    grpc: Annotated[
        bool, typer.Option("--grpc", help=f"Serve the 5.x SDKs too, on port {GRPC_PORT}, or a free one if others are.")
    ] = False,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls", help="Serve TLS too, with a certificate of an authority made for this run (with --store: kept)."
        ),
    ] = False,
    acl: Annotated[
        bool,
        typer.Option(
            "--acl", help="Serve requests of users alone, an administrator and one that sends and consumes; for a run."
        ),
    ] = False,
    control_port: Annotated[
        int | None,
        _port(
            "--control-port",
            "With --ephemeral: port of 127.0.0.1 for HTTP requests that move the clock, order faults or reset all; 0 "
            "picks a free one.",
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="LAYOUT",
            help="Run a whole cluster, each server as a process: 2m-noslave, 2m-2s-async or 2m-2s-sync.",
        ),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Send, consume and count messages on free ports, then exit.")
    ] = False,
    messages: Annotated[
        int, typer.Option("--messages", min=1, metavar="COUNT", help="Messages that the demo sends.")
    ] = DEMO_MESSAGES,
    version: Version = False,
) -> None:
    """Run a name server and a broker in one process until Ctrl-C, for development."""
    started, ready = time.monotonic(), _ReadyFile(ready_file)
    if ephemeral and store is not None:
        raise typer.BadParameter("--ephemeral keeps nothing and --store keeps all; give one of them")
    if demo and layout is not None:
        raise typer.BadParameter("--demo runs one broker and --layout several; give one of them")
    if grpc and layout is not None:
        raise typer.BadParameter("--grpc is for one broker; run bin/mqproxy -n NAMESRV_ADDR in front of a --layout")
    if tls and (demo or layout is not None):
        raise typer.BadParameter("--tls is for one broker; give it without --layout and --demo")
    users = (
        _first_users(excluded=demo or layout is not None or store is not None or control_port is not None)
        if acl
        else None
    )
    if control_port is not None and (demo or layout is not None or not ephemeral):
        raise typer.BadParameter(
            "--control-port is for test suites; give it with --ephemeral, without --layout or --demo"
        )
    files: ThrowAwayTls | None = None
    try:
        properties = _properties(settings or (), ephemeral=ephemeral)
        set_up_logging(properties.get("logLevel") or os.environ.get(LEVEL_VARIABLE) or "WARNING")
        raise_open_file_limit(TransportConfig().reserved_open_files)
        on_free_ports = demo or ephemeral
        namesrv_port = (0 if on_free_ports else NAMESRV_PORT) if port is None else port
        first_port = (0 if on_free_ports else BROKER_PORT) if broker_port is None else broker_port
        if grpc:
            properties = grpc_properties(0 if on_free_ports else GRPC_PORT) | properties
        if tls:
            files = ThrowAwayTls(store, {advertise or host})
            properties = files.properties | properties
        if layout is not None:
            _serve_layout(layout, namesrv_port, first_port, store, host, advertise, properties, ready)
            return
        if control_port is not None:
            from rocketbroker.testing.control_server import ControlServer
            from rocketbroker.testing.rocketmq_server import RocketMQServer

            mq = RocketMQServer(
                properties, namesrv_port=namesrv_port, broker_port=first_port, host=host, advertise=advertise
            )
            _serve_controlled(mq, ControlServer(mq, control_port), ready, started, files)
            return
        from rocketbroker.app.broker_controller import BrokerController
        from rocketbroker.app.launch.dev_server import DevServer

        server = DevServer(
            namesrv_port,
            first_port,
            store,
            host=host,
            advertise=advertise,
            properties=properties,
            bind=partial(BrokerController.bind, when_warm=spare_the_collector),
            users=users,
        )
        if demo:
            from rocketbroker.app.launch.demo import run_demo

            if code := run_demo(server, messages):
                raise typer.Exit(code)
        else:
            _serve(server, ready, started, files, users)
    except (ConfigError, StoreError) as error:
        print(f"mqdev: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    finally:
        if files is not None:
            files.remove()


def _first_users(*, excluded: bool) -> "FirstUsers":
    """Return the users of ``--acl``; ``excluded`` if another option rules them out."""
    from rocketbroker.app.launch.first_users import FirstUsers

    if excluded:
        raise typer.BadParameter(
            "--acl makes users for one run of one broker; give it without --layout, --demo, --store and "
            "--control-port, or name a user by --set authenticationEnabled=true and --set initAuthenticationUser=..."
        )
    return FirstUsers.demo()


def _properties(settings: Sequence[str], *, ephemeral: bool) -> dict[str, str]:
    """Return the properties of the brokers.

    Raises:
        ConfigError: A setting is unknown or invalid.
    """
    from rocketbroker.app.launch.dev_server import small_files

    properties: dict[str, str] = {}
    for text in settings:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise typer.BadParameter(f"--set {text}: give KEY=VALUE, such as flushDiskType=SYNC_FLUSH")
        properties[key.strip()] = value.strip()
    broker_settings_of([Entry(key, value, "--set") for key, value in properties.items()])  # raises
    return small_files(properties) if ephemeral else properties


def _print_addresses(
    server: "DevServer | RocketMQServer", started: float, kept: str, files: "ThrowAwayTls | None"
) -> None:
    print(f"ready in {time.monotonic() - started:.2f} s")
    print(f"  namesrv {server.namesrv_addr}  <- the address to use")
    print(f"  broker  {server.broker_addr}  broker-a in DefaultCluster")
    if server.endpoints:
        print(f"  grpc    {server.endpoints}  <- the endpoints of 5.x SDKs")
    if files is not None:
        print(f"  tls     {files.authority}  <- what clients trust; plain text is served too")
    print(f"  store   {server.store}{kept}")


def _variables(server: "DevServer | RocketMQServer", files: "ThrowAwayTls | None") -> str:
    """Return the addresses, and the file that clients trust, as the ready file has them."""
    authority = f"TLS_CA={files.authority}\n" if files is not None else ""
    endpoints = f"ENDPOINTS={server.endpoints}\n" if server.endpoints else ""
    return f"NAMESRV_ADDR={server.namesrv_addr}\n{endpoints}{authority}"


def _user_variables(users: "FirstUsers") -> str:
    """Return the users, as the ready file has them."""
    from rocketbroker.app.launch.first_users import ADMIN, DEMO

    client, admin = users.secrets[DEMO], users.secrets[ADMIN]
    return f"ACCESS_KEY={DEMO}\nSECRET_KEY={client}\nADMIN_ACCESS_KEY={ADMIN}\nADMIN_SECRET_KEY={admin}\n"


def _print_users(users: "FirstUsers", namesrv_addr: str) -> None:
    from rocketbroker.app.launch.first_users import ADMIN, DEMO

    print(f"  admin   {ADMIN} {users.secrets[ADMIN]}  <- access key and secret key for mqadmin; may do everything")
    print(f"  user    {DEMO} {users.secrets[DEMO]}  <- for clients; may send and consume, such as")
    print()
    print("    import asyncio")
    print("    from rocketbroker.client import ClientConfig, Message, Producer, SessionCredentials")
    print()
    print("    async def main():")
    print(f'        user = SessionCredentials("{DEMO}", "{users.secrets[DEMO]}")')
    print(f'        async with Producer("PG", ClientConfig("{namesrv_addr}", credentials=user)) as producer:')
    print('            print(await producer.send(Message("Orders", b"first")))')
    print()
    print("    asyncio.run(main())")
    print()


def _serve_controlled(
    mq: "RocketMQServer",
    control: "ControlServer",
    ready: "_ReadyFile",
    started: float,
    files: "ThrowAwayTls | None",
) -> None:
    def booted() -> None:
        ready.write(f"{_variables(mq, files)}CONTROL_URL={control.url}\n")
        _print_addresses(mq, started, "  (removed at exit)", files)
        print(f"  control {control.url}  <- clock, faults and reset by HTTP")
        print("Ctrl-C stops it.", flush=True)

    ready.run(serve(control, booted))


def _serve(
    server: "DevServer",
    ready: "_ReadyFile",
    started: float,
    files: "ThrowAwayTls | None",
    users: "FirstUsers | None",
) -> None:
    def booted() -> None:
        ready.write(_variables(server, files) + (_user_variables(users) if users is not None else ""))
        kept = "" if server.keeps_store else "  (removed at exit; --store DIR keeps it)"
        _print_addresses(server, started, kept, files)
        if users is not None:
            _print_users(users, server.namesrv_addr)
        if server.disk_full:
            print(f"  SENDS ARE REJECTED: {server.disk_full}")
            print("                      free some space, or choose a folder on another disk with --store DIR")
        print("Ctrl-C stops it.", flush=True)

    ready.run(serve(server, booted))


def _serve_layout(  # noqa: PLR0913, PLR0917 - options of the command
    layout: str,
    namesrv_port: int,
    broker_port: int,
    store: Path | None,
    host: str,
    advertise: str | None,
    properties: Mapping[str, str],
    ready: "_ReadyFile",
) -> None:
    from rocketbroker.app.launch.cluster_layout import ClusterLayout
    from rocketbroker.app.launch.dev_server import advertised

    show = partial(print, flush=True)
    cluster = ClusterLayout(
        layout,
        namesrv_port,
        broker_port,
        store,
        host=host,
        advertise=advertised(host, advertise),
        properties=properties,
        show=show,
    )

    def booted() -> None:
        show(f"store          {cluster.store}{'' if store else '  (removed at exit; --store DIR keeps it)'}")
        ready.write(f"NAMESRV_ADDR={cluster.namesrv_addr}\n")
        show(f"ready: clients use the name server {cluster.namesrv_addr}. Ctrl-C stops all.")

    ready.run(serve(cluster, booted, cancels_start=True))


class _ReadyFile:
    """File that names the addresses while the servers run; None for no file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def run(self, main: Coroutine[None, None, None]) -> None:
        """Run a coroutine, without the file before and after."""
        self._remove()
        try:
            run(main)
        finally:
            self._remove()

    def write(self, text: str) -> None:
        """Write the file, which has secrets with --acl; whoever waits for it never sees a part."""
        if self._path is None:
            return
        if not self._path.parent.is_dir():
            raise ConfigError(f"cannot write --ready-file {self._path}: there is no folder {self._path.parent}")
        try:
            write_private(self._path, text.encode())
        except OSError as error:
            raise ConfigError(f"cannot write --ready-file {self._path}: {error.strerror}") from error

    def _remove(self) -> None:
        if self._path is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot remove --ready-file {self._path}: {error.strerror}") from error


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqdev")


if __name__ == "__main__":
    main()

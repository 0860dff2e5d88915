"""The command ``mqbroker`` (org.apache.rocketmq.broker.BrokerStartup).

mqbroker [-c broker-a.properties ...] [-n 127.0.0.1:9876] [--proxy] [-p] [-m]
"""

import faulthandler
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, product
from typing import TYPE_CHECKING, Annotated

import typer

from rocketbroker.app.command_line import Check, Version, new_app
from rocketbroker.app.server_log import ServerLog
from rocketbroker.app.server_process import log_access, log_remarks, run, serve, spare_the_collector
from rocketbroker.common.config.load import VIP_PORT_DISTANCE, BrokerSettings, load_broker_settings
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.open_files import raise_open_file_limit

if TYPE_CHECKING:
    from rocketbroker.app.broker_controller import BrokerController
    from rocketbroker.common.config.proxy_settings import ProxySettings

app = new_app()


@app.command()
def mqbroker(
    config_files: Annotated[
        list[str] | None,
        typer.Option(
            "-c",
            "--configFile",
            metavar="FILE",
            help="Properties file with settings; several files run several brokers, a process each.",
        ),
    ] = None,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT[;...]", help="Name servers to register with."),
    ] = None,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Serve the 5.x SDKs too, on grpcServerPort (grpcServerEnable=true).")
    ] = False,
    print_config: Annotated[bool, typer.Option("-p", "--printConfigItem", help="Print all settings and exit.")] = False,
    print_important: Annotated[
        bool, typer.Option("-m", "--printImportantConfig", help="Print the important settings and exit.")
    ] = False,
    check: Check = False,
    version: Version = False,
) -> None:
    """Run a RocketMQ broker until SIGTERM or SIGINT."""
    try:
        files: Sequence[str | None] = config_files or (None,)
        brokers = [load_broker_settings(file, namesrv_addr) for file in files]
        if proxy:
            brokers = [settings.with_broker(grpc_server_enable=True) for settings in brokers]
        if check:
            _probe(brokers)
        elif print_config or print_important:
            for settings in brokers:
                _print_settings(settings, important=print_important)
        elif len(brokers) > 1:
            options = () if namesrv_addr is None else ("-n", namesrv_addr)
            _run_many(brokers, (*options, "--proxy") if proxy else options)
        else:
            run_broker(brokers[0], partial(announce, brokers[0]))
    except (ConfigError, StoreError) as error:
        print(f"mqbroker: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def _probe(brokers: Sequence[BrokerSettings]) -> None:
    from rocketbroker.app.probe import probe_broker, report, tls_of, transport_address

    if len(brokers) > 1:
        raise ConfigError("--check takes one -c: it probes one broker")
    transport = brokers[0].transport
    address = transport_address(transport)
    report("mqbroker", probe_broker(address, tls_of(transport)), address)


def _print_settings(settings: BrokerSettings, *, important: bool) -> None:
    from rocketbroker.common.config.current_settings import broker_lines

    for line in broker_lines(settings, important=important):
        print(line)


def run_broker(
    settings: BrokerSettings, booted: "Callable[[BrokerController], None]", proxy: "ProxySettings | None" = None
) -> None:
    """Serve a broker until SIGTERM or SIGINT.

    Args:
        settings: its settings.
        booted: called once it serves.
        proxy: further settings whose warnings are logged.

    Raises:
        ConfigError: The port is in use, or a setting cannot be followed.
        StoreError: The store cannot be opened.
    """
    from rocketbroker.app.broker_controller import BrokerController

    # A mapped page that the disk cannot read ends the process by SIGBUS; this prints where.
    faulthandler.enable()
    broker = settings.broker
    with ServerLog(broker, "broker", f"{broker.broker_name}_{broker.broker_id}"):
        log_access(settings.transport, broker.broker_ip1)
        for each in (settings, proxy):
            if each is not None:
                log_remarks(each)
        raise_open_file_limit(settings.transport.reserved_open_files)
        controller = BrokerController.bind(settings, when_warm=spare_the_collector)
        run(serve(controller, lambda: booted(controller)))


def _run_many(brokers: Sequence[BrokerSettings], options: Sequence[str]) -> None:
    from rocketbroker.app.launch.supervised_processes import Program, SupervisedProcesses

    _check_apart(brokers)
    show = partial(print, flush=True)
    programs = [
        Program(
            f"{settings.broker.broker_name}:{settings.broker.broker_id}",
            "rocketbroker.app.broker_startup",
            ("-c", str(settings.path), *options),
        )
        for settings in brokers
    ]
    processes = SupervisedProcesses(programs, show)
    run(serve(processes, lambda: show(f"{len(brokers)} brokers serve; Ctrl-C stops them."), cancels_start=True))


def _check_apart(brokers: Sequence[BrokerSettings]) -> None:
    """Check that no two brokers have the same place.

    Raises:
        ConfigError: Two have the same name and id, port or store.
    """
    seen: dict[tuple[str, object], BrokerSettings] = {}
    for settings in brokers:
        broker = settings.broker
        for setting, value in (
            ("brokerName and brokerId", (broker.broker_name, broker.broker_id)),
            ("storePathRootDir", settings.store.store_path_root_dir),
        ):
            other = seen.setdefault((setting, value), settings)
            if other is not settings:
                shown = f"{value[0]}:{value[1]}" if isinstance(value, tuple) else value
                raise ConfigError(
                    f"{settings.path} and {other.path} have the same {setting}: {shown}; give each broker its own"
                )
    for other, settings in combinations(brokers, 2):
        _check_ports_apart(other, settings)


def _check_ports_apart(first: BrokerSettings, second: BrokerSettings) -> None:
    addresses = {first.transport.bind_address, second.transport.bind_address}
    if len(addresses) > 1 and not addresses & {"", "0.0.0.0", "::"}:  # noqa: S104
        return
    for (name, port), (other, other_port) in product(_ports(first).items(), _ports(second).items()):
        if port == other_port:
            both = name if name == other else f"port as {name} and {other}"
            raise ConfigError(f"{first.path} and {second.path} have the same {both}: {port}; give each broker its own")


def _ports(settings: BrokerSettings) -> dict[str, int]:
    """Return the ports of a broker by setting; with ``listenPort=0`` it takes free ones."""
    port = settings.transport.listen_port
    if not port:
        return {}
    vip = {"listenPort": port, "VIP port": port - VIP_PORT_DISTANCE}
    return vip if settings.store.broker_role == "SLAVE" else {**vip, "haListenPort": settings.store.ha_listen_port}


def announce(settings: BrokerSettings, controller: "BrokerController") -> None:
    """Print that the broker is ready."""
    # Scripts wait for exactly this line of RocketMQ.
    broker = settings.broker
    text = f"The broker[{broker.broker_name}, {controller.address}] boot success. serializeType=JSON"
    if broker.namesrv_addr:
        text += f" and name server is {broker.namesrv_addr}"
    print(text, flush=True)


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqbroker")


if __name__ == "__main__":
    main()

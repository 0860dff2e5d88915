"""The command ``mqbroker`` (org.apache.rocketmq.broker.BrokerStartup).

mqbroker [-c broker-a.properties] [-n 127.0.0.1:9876] [-p] [-m]
"""

import faulthandler
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rocketbroker.app.access_notice import log_access
from rocketbroker.app.command_line import Version, new_app
from rocketbroker.app.event_loop import run, serve, spare_the_collector
from rocketbroker.app.logging_setup import set_up_logging
from rocketbroker.common.config.load import BrokerSettings, load_broker_settings
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.open_files import raise_open_file_limit

if TYPE_CHECKING:
    from rocketbroker.app.broker_controller import BrokerController

app = new_app()


@app.command()
def mqbroker(
    config_file: Annotated[
        str | None, typer.Option("-c", "--configFile", metavar="FILE", help="Properties file with settings.")
    ] = None,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT[;...]", help="Name servers to register with."),
    ] = None,
    print_config: Annotated[bool, typer.Option("-p", "--printConfigItem", help="Print all settings and exit.")] = False,
    print_important: Annotated[
        bool, typer.Option("-m", "--printImportantConfig", help="Print the important settings and exit.")
    ] = False,
    version: Version = False,
) -> None:
    """Run a RocketMQ broker until SIGTERM or SIGINT."""
    try:
        settings = load_broker_settings(config_file, namesrv_addr)
        if print_config or print_important:
            _print_settings(settings, important=print_important)
        else:
            _run(settings)
    except (ConfigError, StoreError) as error:
        print(f"mqbroker: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def _print_settings(settings: BrokerSettings, *, important: bool) -> None:
    from rocketbroker.common.config.printing import broker_lines

    for line in broker_lines(settings, important=important):
        print(line)


def _run(settings: BrokerSettings) -> None:
    from rocketbroker.app.broker_controller import BrokerController

    set_up_logging()
    # A mapped page that the disk cannot read ends the process by SIGBUS; this prints where.
    faulthandler.enable()
    log_access(settings.transport)
    for warning in settings.warnings:
        print(f"mqbroker: {warning}", file=sys.stderr)
    raise_open_file_limit(settings.transport.reserved_open_files)
    controller = BrokerController.bind(settings, when_warm=spare_the_collector)
    run(serve(controller, lambda: announce(settings, controller)))


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

"""The command ``mqnamesrv`` (org.apache.rocketmq.namesrv.NamesrvStartup).

mqnamesrv [-c namesrv.properties] [-p]
"""

import sys
from typing import Annotated

import typer

from rocketbroker.app.command_line import Check, Version, new_app
from rocketbroker.app.server_log import ServerLog
from rocketbroker.app.server_process import log_access, log_remarks, run, serve
from rocketbroker.common.config.load import NamesrvSettings, load_namesrv_settings
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.open_files import raise_open_file_limit

app = new_app()


@app.command()
def mqnamesrv(
    config_file: Annotated[
        str | None, typer.Option("-c", "--configFile", metavar="FILE", help="Properties file with settings.")
    ] = None,
    print_config: Annotated[bool, typer.Option("-p", "--printConfigItem", help="Print all settings and exit.")] = False,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT", help="Accepted and ignored, as in RocketMQ."),
    ] = None,
    check: Check = False,
    version: Version = False,
) -> None:
    """Run a RocketMQ name server until SIGTERM or SIGINT."""
    try:
        settings = load_namesrv_settings(config_file)
        if check:
            _probe(settings)
        elif print_config:
            _print_settings(settings)
        else:
            _run(settings)
    except ConfigError as error:
        print(f"mqnamesrv: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def _probe(settings: NamesrvSettings) -> None:
    from rocketbroker.app.probe import probe_namesrv, report, tls_of, transport_address

    address = transport_address(settings.transport)
    report("mqnamesrv", probe_namesrv(address, tls_of(settings.transport)), address)


def _print_settings(settings: NamesrvSettings) -> None:
    from rocketbroker.common.config.current_settings import namesrv_lines

    for line in namesrv_lines(settings):
        print(line)


def _run(settings: NamesrvSettings) -> None:
    with ServerLog(settings.namesrv, "namesrv"):
        _serve(settings)


def _serve(settings: NamesrvSettings) -> None:
    from rocketbroker.app.namesrv_controller import NamesrvController

    log_access(settings.transport)
    log_remarks(settings)
    if settings.path is not None:
        print(f"load config properties file OK, {settings.path}")
    raise_open_file_limit(settings.transport.reserved_open_files)
    controller = NamesrvController(settings)

    def booted() -> None:
        where = f"address {settings.transport.bind_address}:{controller.port}"
        # Scripts wait for exactly this line of RocketMQ.
        print(f"The Name Server boot success. serializeType=JSON, {where}", flush=True)

    run(serve(controller, booted))


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqnamesrv")


if __name__ == "__main__":
    main()

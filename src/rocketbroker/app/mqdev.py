"""The command ``mqdev``: name server and broker in one process, for development.

mqdev [--port PORT] [--broker-port PORT] [--store DIR] [--demo [--messages N]]
"""

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from rocketbroker.app.command_line import Version, new_app
from rocketbroker.app.event_loop import run, serve
from rocketbroker.app.logging_setup import LEVEL_VARIABLE, set_up_logging
from rocketbroker.common.config.transport_config import BROKER_PORT, NAMESRV_PORT, TransportConfig
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.open_files import raise_open_file_limit

DEMO_MESSAGES = 10_000

app = new_app()


@app.command()
def mqdev(
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="Port of the name server; 0 takes a free one.", show_default="9876"
        ),
    ] = None,
    broker_port: Annotated[
        int | None,
        typer.Option("--broker-port", min=0, max=65535, help="Port of the broker; 0 likewise.", show_default="10911"),
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="DIR", help="Keep what is stored here, for the next time.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Send, consume and count messages on free ports, show the result and end.")
    ] = False,
    messages: Annotated[int, typer.Option("--messages", min=1, help="How many, with --demo.")] = DEMO_MESSAGES,
    version: Version = False,
) -> None:
    """Run a name server and a broker on the loopback address until Ctrl-C."""
    started = time.monotonic()
    try:
        set_up_logging(os.environ.get(LEVEL_VARIABLE) or "WARNING")
        raise_open_file_limit(TransportConfig().reserved_open_files)
        if demo:
            _demo(port or 0, broker_port or 0, store, messages)
        else:
            _serve(
                NAMESRV_PORT if port is None else port,
                BROKER_PORT if broker_port is None else broker_port,
                store,
                started,
            )
    except (ConfigError, StoreError) as error:
        print(f"mqdev: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def _serve(port: int, broker_port: int, store: Path | None, started: float) -> None:
    from rocketbroker.app.dev_server import DevServer

    server = DevServer(port, broker_port, store)

    def booted() -> None:
        kept = "" if server.keeps_store else "  (removed at the end; --store DIR keeps it)"
        print(f"ready in {time.monotonic() - started:.2f} s")
        print(f"  namesrv {server.namesrv_addr}  <- the address to use")
        print(f"  broker  {server.broker_addr}  broker-a in DefaultCluster")
        print(f"  store   {server.store}{kept}")
        if server.disk_full:
            print(f"  SENDS ARE REFUSED: {server.disk_full}")
            print("                     free some room, or name a folder on another disk by --store DIR")
        print("Ctrl-C stops it.", flush=True)

    run(serve(server, booted))


def _demo(port: int, broker_port: int, store: Path | None, messages: int) -> None:
    from rocketbroker.app.demo import run_demo
    from rocketbroker.app.dev_server import DevServer

    code = run_demo(DevServer(port, broker_port, store), messages)
    if code:
        raise typer.Exit(code)


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqdev")


if __name__ == "__main__":
    main()

"""The command ``mqproxy`` (org.apache.rocketmq.proxy.ProxyStartup).

mqproxy [-n 127.0.0.1:9876] [-pc rmq-proxy.json] [-pm cluster|local] [-bc broker.conf]
"""

import os
import socket
import sys
import uuid
from typing import Annotated

import typer

from rocketbroker.app.broker_startup import run_broker
from rocketbroker.app.command_line import Check, Version, new_app
from rocketbroker.app.server_log import ServerLog
from rocketbroker.app.server_process import log_remarks, run, serve
from rocketbroker.common.config.hosts import local_address
from rocketbroker.common.config.load import NAMESRV_ADDR_ENV, load_broker_settings
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.proxy_settings import ProxySettings, load_proxy_settings
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.lifecycle import Part, PartList
from rocketbroker.common.open_files import raise_open_file_limit

app = new_app()


@app.command()
def mqproxy(
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT[;...]", help="Name servers of the brokers."),
    ] = None,
    proxy_config_path: Annotated[
        str | None,
        typer.Option("-pc", "--proxyConfigPath", metavar="FILE", help="JSON file with settings (rmq-proxy.json)."),
    ] = None,
    proxy_mode: Annotated[
        str | None,
        typer.Option(
            "-pm", "--proxyMode", metavar="MODE", help="cluster: serve the brokers of the name servers; local: run one."
        ),
    ] = None,
    broker_config_path: Annotated[
        str | None,
        typer.Option("-bc", "--brokerConfigPath", metavar="FILE", help="Properties file of the broker in local mode."),
    ] = None,
    check: Check = False,
    version: Version = False,
) -> None:
    """Serve the 5.x SDKs of RocketMQ, which speak gRPC, until SIGTERM or SIGINT."""
    given = {"namesrvAddr": namesrv_addr, "proxyMode": proxy_mode, "brokerConfigPath": broker_config_path}
    environment = os.environ.get(NAMESRV_ADDR_ENV)
    entries = [Entry("namesrvAddr", environment, f"environment variable {NAMESRV_ADDR_ENV}")] if environment else []
    entries += [Entry(name, value, "the command line") for name, value in given.items() if value is not None]
    try:
        settings = load_proxy_settings(proxy_config_path, entries)
        if check:
            _probe(settings)
        _run(settings, proxy_config_path or "")
    except (ConfigError, StoreError) as error:
        print(f"mqproxy: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def _probe(settings: ProxySettings) -> None:
    from rocketbroker.app.probe import own_address, probe_grpc, report

    proxy = settings.proxy
    if proxy.proxy_mode.upper() == "LOCAL":
        transport = load_broker_settings(proxy.broker_config_path or None, proxy.namesrv_addr or None).transport
        if transport.tls_server_mode == "enforcing":  # of the broker, whose port it is
            proxy = proxy.model_copy(update={"grpc_plain_text_enable": False})
    address = own_address("", proxy.grpc_server_port)
    report("mqproxy", probe_grpc(address, proxy), address)


def _run(settings: ProxySettings, path: str) -> None:
    proxy = settings.proxy
    if proxy.proxy_mode.upper() == "LOCAL":
        broker_settings = load_broker_settings(proxy.broker_config_path or None, proxy.namesrv_addr or None)
        changed = {"grpc_server_enable": True, "grpc_server_port": proxy.grpc_server_port, "proxy_config_path": path}
        run_broker(broker_settings.with_broker(**changed), lambda broker: _announce(broker.grpc_port), settings)
        return
    from rocketbroker.app.grpc_port import cluster_port

    if not proxy.namesrv_addr:
        raise ConfigError("there is no name server: give -n HOST:PORT, NAMESRV_ADDR, or namesrvAddr in the file")
    with ServerLog(proxy, "proxy"):
        log_remarks(settings)
        raise_open_file_limit(0)
        client_id = f"{local_address()}@{os.getpid()}@{uuid.uuid4().hex[:8]}"
        port = cluster_port(proxy, client_id, local_address())
        parts: list[Part] = [port]
        if proxy.metrics_exporter_type != "DISABLE":
            from rocketbroker.app.proxy_metrics_port import ProxyMetricsPort

            parts.append(ProxyMetricsPort(proxy, port, socket.gethostname()))
        run(serve(PartList(*parts), lambda: _announce(port.port)))


def _announce(port: int) -> None:
    # Scripts wait for this line of RocketMQ.
    print(f"rocketmq-proxy startup successfully, on port {port}", flush=True)


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqproxy")


if __name__ == "__main__":
    main()

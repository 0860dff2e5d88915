"""Common options of the sub-commands, and the function that runs them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated

import typer

from rocketbroker.app.terminal import Report, print_error, print_report
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.common.errors import ConfigError, RocketBrokerError

NamesrvAddr = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrvAddr",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT[;...]",
        help="Name servers.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value with stable keys.")]
Group = Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="Consumer group.")]
Topic = Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic.")]
RouteCluster = Annotated[
    str | None,
    typer.Option("-c", "--cluster", metavar="NAME", help="Find an LMQ by the route of this cluster or parent topic."),
]
Interval = Annotated[
    int | None, typer.Option("-i", "--interval", min=1, metavar="SECONDS", help="Repeat at this interval.")
]

_EXIT_FAILED = 1


class TrueFalse(StrEnum):
    """Boolean that RocketMQ's tools take as an option value: ``-o true``."""

    true = "true"
    false = "false"

    @property
    def is_true(self) -> bool:
        """The value as a bool."""
        return self is TrueFalse.true


def run(namesrv_addr: str | None, as_json: bool, examine: Callable[[AdminClient], Awaitable[Report]]) -> None:
    """Run a sub-command and print its report; on failure print one line to stderr and exit with 1.

    Raises:
        typer.BadParameter: the name server address is missing or wrong (exit code 2).
        typer.Exit: the sub-command failed.
    """
    if not (namesrv_addr or "").strip():
        raise typer.BadParameter("no name server given; use -n HOST:PORT or set NAMESRV_ADDR")
    try:
        report = asyncio.run(_examine(str(namesrv_addr), examine))
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    except RocketBrokerError as error:
        print_error(with_hint(error))
        raise typer.Exit(_EXIT_FAILED) from error
    print_report(report, as_json=as_json)
    if report.failures:
        raise typer.Exit(_EXIT_FAILED)


def run_repeatedly(
    namesrv_addr: str | None,
    as_json: bool,
    interval: int | None,
    examine: Callable[[AdminClient], Awaitable[Report]],
) -> None:
    """Run a sub-command as ``run`` does, once or at an interval in seconds."""
    while True:
        run(namesrv_addr, as_json, examine)
        if interval is None:
            return
        time.sleep(interval)


def with_hint(error: RocketBrokerError) -> str:
    """Return the text of an error and of its notes, which say what to do."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


async def _examine(namesrv_addr: str, examine: Callable[[AdminClient], Awaitable[Report]]) -> Report:
    async with AdminClient(namesrv_addr) as admin:
        return await examine(admin)

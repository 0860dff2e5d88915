"""Sub-commands that print what watches a cluster: a Grafana board and Prometheus alert rules. They ask no server."""

import inspect
import json
import re
from collections.abc import Callable
from importlib.resources import files
from string import Template
from typing import Annotated, Final

import typer

from rocketbroker.app.mqadmin.command import REGISTERED, Registered
from rocketbroker.app.mqadmin.grafana_board import board
from rocketbroker.app.terminal import say

# Seconds of each unit of a duration.
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def local_command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a function a sub-command without a client."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        summary = (inspect.getdoc(function) or "").split("\n")[0]
        REGISTERED[name] = Registered(summary, function, function.__module__)
        return function

    return register


class _Rules(Template):
    """Text with names of options after ``@``; ``$`` belongs to Prometheus."""

    delimiter = "@"


@local_command("grafana")
def grafana(
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Title of the board.")] = "RocketMQ",
    uid: Annotated[
        str, typer.Option("--uid", metavar="ID", help="Identity of the board: importing it again replaces it.")
    ] = "rocketbroker",
) -> None:
    """Print a Grafana board of the metrics of brokers and name servers, to import."""
    if not title.strip():
        raise typer.BadParameter("--title is empty; give the board a name")
    say(json.dumps(board(title.strip(), uid), indent=2))


@local_command("alerts")
def alerts(
    lag_messages: Annotated[
        int, typer.Option("--lagMessages", min=1, metavar="NUMBER", help="Lag of a group in a topic to alert at.")
    ] = 100_000,
    lag_seconds: Annotated[
        int, typer.Option("--lagSeconds", min=1, metavar="SECONDS", help="Age of its oldest message to alert at.")
    ] = 300,
    replica_seconds: Annotated[
        int, typer.Option("--replicaSeconds", min=1, metavar="SECONDS", help="Lag of a slave to alert at.")
    ] = 30,
    disk_ratio: Annotated[
        float,
        typer.Option("--diskRatio", min=0.01, max=1.0, metavar="RATIO", help="Used share of the disk to warn at."),
    ] = 0.8,
    slaves: Annotated[
        int | None,
        typer.Option(
            "--slaves", min=0, metavar="NUMBER", help="Slaves that each master must have; by default as many as it had."
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            min=0,
            metavar="NUMBER",
            help="Brokers a name server must know, slaves included; by default as many as it knew.",
        ),
    ] = None,
    remember: Annotated[
        str,
        typer.Option(
            "--remember",
            metavar="DURATION",
            help="How long to alert of a lost slave, broker or group, 1h or more, such as 7d.",
        ),
    ] = "7d",
    certificate_days: Annotated[
        int, typer.Option("--certificateDays", min=1, metavar="DAYS", help="Days before a certificate expires.")
    ] = 30,
    job: Annotated[
        str,
        typer.Option("--job", metavar="REGEX", help="Scrape jobs of brokers and name servers, as in prometheus.yml."),
    ] = "rocketmq.*",
    lasting: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="Time that a condition must last, such as 5m.")
    ] = "5m",
) -> None:
    """Print alert rules of Prometheus for the metrics of brokers and name servers."""
    quoted = _regex(job).replace("\\", "\\\\").replace('"', '\\"')
    remembered = _duration("--remember", remember)
    if int(remembered[:-1]) * _SECONDS[remembered[-1]] < _SECONDS["h"]:
        raise typer.BadParameter(
            f"--remember {remember} is too short: the rules look back 1h at least; write 1h or more"
        )
    given = {
        "lagMessages": lag_messages,
        "lagSeconds": lag_seconds,
        "replicaSeconds": replica_seconds,
        "diskRatio": disk_ratio,
        "slavesLost": _lost("rocketbroker_replication_slaves", "cluster, node_id", slaves, remembered),
        "brokersLost": _lost("rocketbroker_namesrv_brokers", "node_id", brokers, remembered),
        "remember": remembered,
        "certificateDays": certificate_days,
        "job": quoted,
        "lasting": _duration("--for", lasting),
    }
    text = files("rocketbroker.app.mqadmin").joinpath("data", "alerts.yml").read_text("utf-8")
    say(_Rules(text).substitute({name: str(value) for name, value in given.items()}).rstrip("\n"))


def _lost(metric: str, by: str, expected: int | None, remember: str) -> str:
    """Return the expression of a number that is below what is expected, or below what it was.

    The window has a sample every half hour, and all samples of the last hour.

    Args:
        metric: the number.
        by: labels to compare by; not ``instance``, since a server may come back at another address.
        expected: least number, ``None`` for the most in the window.
        remember: length of the window.
    """
    now = f"max by ({by}) ({metric})"
    if expected is not None:
        return f"{now} < {expected}"
    # A window of days with all samples would cost Prometheus too much.
    windows = (f"{metric}[1h]", f"{metric}[{remember}:30m]")
    return " or ".join(f"max by ({by}) (max_over_time({window})) > {now}" for window in windows)


def _regex(job: str) -> str:
    """Return a regular expression that stands on one line of the rules."""
    if not job.isprintable():
        raise typer.BadParameter(f"--job {job!r} has a line end or another control character; write a dot for it")
    try:
        re.compile(job)
    except re.error as error:
        raise typer.BadParameter(f"--job {job!r} is no regular expression: {error}; escape it, such as a\\(b") from None
    return job


def _duration(option: str, text: str) -> str:
    if not re.fullmatch("[0-9]{1,9}[smhdw]", text):
        raise typer.BadParameter(f"{option} {text!r} is no duration; write a number and s, m, h, d or w, such as 5m")
    return text

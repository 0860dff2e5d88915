"""Sub-commands of ``mqadmin``: coroutine functions, decorated by ``sub_command``.

A function takes the client and its own options and returns a report. Options that all have, such as ``-n`` and
``--json``, are added to its own; texts arrive without surrounding blanks, and errors of the project become one line on
stderr. To add a command, write the function in the file of its subject and run ``bin/manual``.
"""

import asyncio
import inspect
import re
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from inspect import Parameter
from math import isnan
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
import typer

from rocketbroker.app.mqadmin.access import client_settings
from rocketbroker.app.mqadmin.client_warnings import warnings_on_stderr
from rocketbroker.app.mqadmin.named_clusters import CHOSEN, EXPECTED_BROKERS, GIVEN_SERVERS, chosen_cluster
from rocketbroker.app.terminal import Table, clear_screen, confirmed, print_json, print_table, prose, say
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import ConfigError, RocketBrokerError

LONGEST_PAUSE_S: Final = 86_400

NamesrvAddr = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrvAddr",
        metavar="HOST:PORT[;...]",
        help="Name servers; by default those of --cluster, of NAMESRV_ADDR, or of the default cluster.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value with stable keys.")]
Interval = Annotated[
    int | None,
    typer.Option("-i", "--interval", min=1, max=LONGEST_PAUSE_S, metavar="SECONDS", help="Repeat at this interval."),
]
Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        min=0.1,
        max=LONGEST_PAUSE_S,
        metavar="SECONDS",
        help="Repeat at this interval and redraw the terminal.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation on a terminal.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the requests that would change something; send none.")]

# Options of several sub-commands.
Group = Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="Consumer group.")]
Topic = Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic.")]
RouteCluster = Annotated[
    str | None,
    typer.Option("-c", "--cluster", metavar="NAME", help="Find an LMQ by the route of this cluster or parent topic."),
]
BrokerAddr = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Run on this broker only.")
]
OnBroker = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Apply on this broker only.")
]
OnCluster = Annotated[
    str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Apply on all masters of this cluster.")
]
Cluster = Annotated[
    str | None, typer.Option("-c", "--cluster", metavar="CLUSTER", help="Run on all brokers of this cluster.")
]

EXIT_FAILED: Final = 1
_LOST: Final = re.compile(r"connection to \S+ was lost")


ATTRIBUTES_HELP = "Attributes to set or remove, as +a=b,+c=d,-e."


class TrueFalse(StrEnum):
    """Boolean that RocketMQ's tools take as an option value: ``-o true``."""

    true = "true"
    false = "false"

    @property
    def is_true(self) -> bool:
        """The value as a bool."""
        return self is TrueFalse.true


class Report(NamedTuple):
    """The outcome of a sub-command.

    ``--json`` prints ``data`` (structs, lists and dicts), otherwise ``parts`` are printed. ``failures`` are lines for
    stderr; any failure makes the exit code 1.
    """

    data: Any
    parts: Sequence[str | Table]
    failures: Sequence[str] = ()


class Registered(NamedTuple):
    """A sub-command: its line in the list of all, the function that typer runs, and the module that has it."""

    summary: str
    function: Callable[..., None]
    module: str


# Sub-commands of the modules imported so far, by name and in the order of their definition.
REGISTERED: dict[str, Registered] = {}

Work = TypeVar("Work", bound=Callable[..., Awaitable[Report]])
Client = TypeVar("Client", bound=AdminClient)


def sub_command(
    name: str,
    summary: str = "",
    *,
    repeats: bool = False,
    reads: bool = False,
    deletes: str | Callable[..., str] = "",
    dry_run: bool = False,
) -> Callable[[Work], Work]:
    """Return a decorator that makes a function a sub-command.

    A function that has a parameter ``as_json``, ``yes`` or ``dry_run``, all bools, is given the value of the option; it
    then asks (``confirmed``) or holds back by itself. One that has printed everything returns ``Report(None, [])``.

    Args:
        name: RocketMQ's name of the sub-command.
        summary: its line in the list of all; the default is the first line of the docstring, which is its help.
        repeats: add the option ``-i``, which repeats it at an interval.
        reads: it changes nothing; add ``--watch``.
        deletes: question asked on a terminal before it runs, such as ``Delete topic {topic}?``, with options in braces,
            or a function that returns it for all options, an empty one if nothing is deleted; adds ``--yes``.
        dry_run: add ``--dry-run``, which lists the requests of the admin client that would change something.
    """

    def register(work: Work) -> Work:
        help_text = inspect.getdoc(work) or ""
        declared = set(inspect.signature(work).parameters)
        flags = {
            "interval": Interval if repeats else None,
            "watch": Watch if reads else None,
            "yes": Yes if deletes or "yes" in declared else None,
            "dry_run": DryRun if dry_run or "dry_run" in declared else None,
            "as_json": AsJson,
        }
        added = {flag: annotation for flag, annotation in flags.items() if annotation is not None}
        REGISTERED[name] = Registered(
            summary or help_text.split("\n")[0], _with_options(name, work, added, deletes), work.__module__
        )
        return work

    return register


def _with_options(
    name: str, work: Callable[..., Awaitable[Report]], added: Mapping[str, Any], deletes: str | Callable[..., str]
) -> Callable[..., None]:
    """Return the function that typer runs: the options of ``work``, ``-n`` and those added."""
    declared = list(inspect.signature(work).parameters.values())[1:]
    own = [each for each in declared if each.name not in added]
    taken = {each.name for each in declared} & set(added)

    def command(**options: Any) -> None:
        chosen = CHOSEN.get()
        GIVEN_SERVERS.set(options["namesrv_addr"])
        cluster = chosen_cluster(options["namesrv_addr"], chosen)
        EXPECTED_BROKERS.set(cluster.brokers)
        config = client_settings(cluster, chosen)
        values = {each.name: options[each.name] for each in own}
        values = {key: value.strip() if type(value) is str else value for key, value in values.items()}
        flags = {flag: options[flag] for flag in added}
        values |= {flag: flags[flag] for flag in taken}
        plans = flags.get("dry_run", False) and "dry_run" not in taken
        if deletes and not plans and not flags["yes"]:
            question = deletes(**values) if callable(deletes) else deletes.format(**values)
            if question and not confirmed(question, config.namesrv_addr):
                print_error("nothing was changed")
                raise typer.Exit(EXIT_FAILED)
        if plans:
            _show_plan(config, flags["as_json"], lambda admin: work(admin, **values))
            return
        _repeat(config, flags, lambda admin: work(admin, **values))

    required = [each for each in own if each.default is Parameter.empty]
    kind = Parameter.POSITIONAL_OR_KEYWORD
    defaults = {"yes": False, "dry_run": False, "as_json": False}
    parameters = [
        *required,
        Parameter("namesrv_addr", kind, default=None, annotation=NamesrvAddr),
        *own[len(required) :],
        *(Parameter(flag, kind, default=defaults.get(flag), annotation=each) for flag, each in added.items()),
    ]
    # typer reads the options from the signature and the types beside it.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = work.__doc__
    return command


def _repeat(config: ClientConfig, flags: Mapping[str, Any], work: Callable[[AdminClient], Awaitable[Report]]) -> None:
    """Run once, or again and again: then a failure is shown and does not end it, since servers come back."""
    interval, watch, as_json = flags.get("interval"), flags.get("watch"), flags["as_json"]
    if interval is not None and watch is not None:
        raise typer.BadParameter("give either -i or --watch")
    pause = watch or interval
    if pause is None:
        run(config, as_json, work)
        return
    if isnan(pause):  # which is in every range
        raise typer.BadParameter(f"--watch takes seconds from 0.1 to {LONGEST_PAUSE_S}")
    head = f"Every {pause:g} s until Ctrl-C: mqadmin {shlex.join(sys.argv[1:])}"
    while True:
        outcome = _outcome(config, work)
        if watch is not None and not as_json:
            clear_screen()
            say(f"{human_millis(SystemClock().time_ms())}  {head}\n")
        print_error(outcome) if isinstance(outcome, str) else print_report(outcome, as_json=as_json)
        sys.stdout.flush()
        time.sleep(pause)


def run(config: ClientConfig, as_json: bool, work: Callable[[AdminClient], Awaitable[Report]]) -> None:
    """Run a sub-command and print its report; on failure print one line to stderr and exit with 1.

    Raises:
        typer.BadParameter: an option is wrong, or the name server address is wrong (exit code 2).
        typer.Exit: the sub-command failed.
    """
    outcome = _outcome(config, work)
    if isinstance(outcome, str):
        print_error(outcome)
        raise typer.Exit(EXIT_FAILED)
    print_report(outcome, as_json=as_json)
    if outcome.failures:
        raise typer.Exit(EXIT_FAILED)


def _outcome(config: ClientConfig, work: Callable[[AdminClient], Awaitable[Report]]) -> Report | str:
    """Run a sub-command once, and return its report or the reason why it failed."""
    try:
        with warnings_on_stderr():
            return asyncio.run(_connected(AdminClient, config, work))
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    except RocketBrokerError as error:
        return _failure(error, config)


def _failure(error: RocketBrokerError, config: ClientConfig) -> str:
    """Return the reason why a sub-command failed, with a hint if the server may have asked for TLS."""
    reason = with_hint(error)
    if not config.tls and _LOST.search(reason):
        reason += "; a server that demands TLS closes plain connections: give --tls or --ca-file FILE"
    return reason


async def _connected(kind: type[Client], config: ClientConfig, work: Callable[[Client], Awaitable[Report]]) -> Report:
    async with kind(config) as admin:
        report = await work(admin)
        left_out = [f"broker {name} has slaves only, and was left out" for name in sorted(admin.without_master)]
        return report._replace(failures=[*report.failures, *left_out])


def _show_plan(config: ClientConfig, as_json: bool, work: Callable[[AdminClient], Awaitable[Report]]) -> None:
    """Run a sub-command that sends only what reads, and print what it would have sent instead of its report."""
    from rocketbroker.client.admin.dry_run import NOT_SENT, DryRunClient, NotSentError

    async def planned(admin: DryRunClient) -> Report:
        try:
            found = list((await work(admin)).failures)
        except NotSentError as error:
            found = [str(error)]
        except ConfigError:
            raise
        except RocketBrokerError as error:
            if not admin.planned:
                raise
            found = [with_hint(error)]
        failures = [failure for failure in found if NOT_SENT not in failure]
        lines = [str(each) for each in admin.planned] or ["nothing would be changed"]
        if len(failures) < len(found):
            lines.append("what follows depends on the answer, and is not shown")
        return Report({"requests": admin.planned}, lines, failures)

    try:
        with warnings_on_stderr():
            report = asyncio.run(_connected(DryRunClient, config, planned))
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    except RocketBrokerError as error:
        print_error(_failure(error, config))
        raise typer.Exit(EXIT_FAILED) from error
    print_report(report, as_json=as_json)
    if report.failures:
        raise typer.Exit(EXIT_FAILED)


def print_report(report: Report, *, as_json: bool) -> None:
    """Print a report to stdout and its failures to stderr."""
    if not as_json:
        for part in report.parts:
            say(part) if isinstance(part, str) else print_table(part)
    elif report.data is not None:
        print_json(report.data)
    for failure in report.failures:
        print_error(failure)


def print_error(reason: str) -> None:
    """Print the reason to stderr as one line, which a terminal folds."""
    say(prose(f"mqadmin: {' '.join(reason.split())}", err=True), err=True)


def with_hint(error: RocketBrokerError) -> str:
    """Return the text of an error and of its notes, which say what to do."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


async def chosen_brokers(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """Return the address of the given broker, or those of all brokers of the cluster, or of all clusters.

    Raises:
        typer.BadParameter: a broker and a cluster are given, or an empty address.
    """
    if broker is not None and cluster is not None:
        raise typer.BadParameter("give either -b (one broker) or -c (all brokers of a cluster), or neither (all)")
    return await admin.fetch_broker_addresses(cluster) if broker is None else [given_address(broker)]


def given_address(text: str) -> str:
    """Return the address of a broker, which scripts leave empty when a variable of theirs is.

    Raises:
        typer.BadParameter: it is empty.
    """
    if not text:
        raise typer.BadParameter("-b is empty; give the address of a broker as HOST:PORT, or leave -b out")
    return text


async def chosen_masters(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """Return the address of the given broker, or those of the masters of the cluster, at least one.

    A broker of the cluster that has no master becomes a failure of the report.

    Raises:
        typer.BadParameter: not exactly one of them is given, or an empty address.
        ClientError: the cluster is unknown, or has no master.
    """
    if broker is not None and cluster is None:
        return [given_address(broker)]
    if cluster is not None and broker is None:
        return list((await admin.fetch_master_addresses(cluster)).values())
    raise typer.BadParameter("give either -b (one broker) or -c (all masters of a cluster)")


async def on_brokers(
    admin: AdminClient, broker: str | None, cluster: str | None, ask: Callable[[AdminClient, str], Awaitable[None]]
) -> Report:
    """Send a request to one broker after the other, and report which succeeded.

    Args:
        admin: the client.
        broker: address of the only broker to ask.
        cluster: cluster whose brokers to ask; without both, all brokers.
        ask: sends the request to a broker address.

    Raises:
        typer.BadParameter: a broker and a cluster are given.
    """
    addresses = await chosen_brokers(admin, broker, cluster)
    succeeded, failed = await ask_each(addresses, lambda address: ask(admin, address))
    return Report({"brokers": succeeded}, [f"{address} success" for address in succeeded], failure_lines(failed))


async def ask_each(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[object]]
) -> tuple[list[str], dict[str, RocketBrokerError]]:
    """Send a request to one broker after the other; return the addresses that succeeded, and the others' errors.

    Ctrl-C prints which succeeded before.
    """
    succeeded: list[str] = []
    failed: dict[str, RocketBrokerError] = {}
    for address in addresses:
        try:
            await ask(address)
        except RocketBrokerError as error:
            failed[address] = error
        except asyncio.CancelledError:
            done = ", ".join(succeeded) or "no broker"
            print_error(f"interrupted at {address}, which may have done it or not; {done} did it before")
            raise
        else:
            succeeded.append(address)
    return succeeded, failed


class ServerRow(Protocol):
    """A row of a report about one server, with the error that kept it from answering."""

    addr: str
    error: str | None


Row = TypeVar("Row", bound=ServerRow)


async def fill_rows(rows: Iterable[Row], fill: Callable[[Row], Awaitable[None]]) -> list[str]:
    """Fill in the rows of servers one after the other; an error goes into its row. Return the failures."""
    failures = []
    for row in rows:
        try:
            await fill(row)
        except RocketBrokerError as error:
            row.error = with_hint(error)
            failures.append(f"{row.addr}: {row.error}")
    return failures


def failure_lines(failed: Mapping[str, RocketBrokerError]) -> list[str]:
    """Return the failures of a report for errors by the address of their server."""
    return [f"{address}: {with_hint(error)}" for address, error in failed.items()]


def parse_attributes(text: str) -> dict[str, str]:
    """Return attribute changes by signed key: ``+a=b`` sets, ``-a`` removes.

    Raises:
        typer.BadParameter: a part has neither form.
    """
    changes = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if len(key) < 2 or key[0] not in "+-" or (key[0] == "+") != bool(equals and value):
            raise typer.BadParameter(
                f"{part!r} does not change an attribute; use +key=value to set one, -key to remove one"
            )
        changes[key] = value
    return changes


def java_text(value: object) -> str:
    """Return a value as Java's ``toString`` prints it."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return type(value).__name__ + java_text({shown: getattr(value, name) for name, shown in names})
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={java_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(java_text, value))}]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Sub-commands of ``mqadmin``: coroutine functions, decorated by ``sub_command``.

A function takes the client and its own options and returns a report. ``-n`` and ``--json`` are added to its options,
texts arrive without surrounding blanks, and errors of the project become one line on stderr. To add a command, write
the function in the file of its subject.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from inspect import Parameter
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import typer

from rocketbroker.app.terminal import Table, print_json, print_table, say
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
Interval = Annotated[
    int | None, typer.Option("-i", "--interval", min=1, metavar="SECONDS", help="Repeat at this interval.")
]

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

_EXIT_FAILED = 1


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


class SubCommand(NamedTuple):
    """A sub-command: its line in the list of all, and the function that typer runs."""

    summary: str
    function: Callable[..., None]


# Sub-commands by name, in the order of their definition, which is that of the help and of the manual.
SUB_COMMANDS: dict[str, SubCommand] = {}

Work = TypeVar("Work", bound=Callable[..., Awaitable[Report]])


def sub_command(name: str, summary: str = "", *, repeats: bool = False) -> Callable[[Work], Work]:
    """Return a decorator that makes a function a sub-command.

    Args:
        name: RocketMQ's name of the sub-command.
        summary: its line in the list of all; the default is the first line of the docstring, which is its help.
        repeats: add the option ``-i``, which repeats it at an interval.
    """

    def register(work: Work) -> Work:
        help_text = inspect.getdoc(work) or ""
        SUB_COMMANDS[name] = SubCommand(summary or help_text.split("\n")[0], _with_options(work, repeats))
        return work

    return register


def _with_options(work: Callable[..., Awaitable[Report]], repeats: bool) -> Callable[..., None]:
    """Return the function that typer runs: the options of ``work`` and those of every sub-command."""

    def command(
        namesrv_addr: str | None = None, interval: int | None = None, as_json: bool = False, **options: Any
    ) -> None:
        own = {name: value.strip() if type(value) is str else value for name, value in options.items()}
        while True:
            run(namesrv_addr, as_json, lambda admin: work(admin, **own))
            if interval is None:
                return
            time.sleep(interval)

    own = list(inspect.signature(work).parameters.values())[1:]
    required = [each for each in own if each.default is Parameter.empty]
    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        *required,
        Parameter("namesrv_addr", kind, default=None, annotation=NamesrvAddr),
        *own[len(required) :],
        *([Parameter("interval", kind, default=None, annotation=Interval)] if repeats else []),
        Parameter("as_json", kind, default=False, annotation=AsJson),
    ]
    # typer reads the options from the signature and the types beside it.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = work.__doc__
    return command


def run(namesrv_addr: str | None, as_json: bool, work: Callable[[AdminClient], Awaitable[Report]]) -> None:
    """Run a sub-command and print its report; on failure print one line to stderr and exit with 1.

    Raises:
        typer.BadParameter: an option is wrong, or the name server address is missing or wrong (exit code 2).
        typer.Exit: the sub-command failed.
    """
    if not (namesrv_addr or "").strip():
        raise typer.BadParameter("no name server given; use -n HOST:PORT or set NAMESRV_ADDR")
    try:
        report = asyncio.run(_connected(str(namesrv_addr), work))
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    except RocketBrokerError as error:
        print_error(with_hint(error))
        raise typer.Exit(_EXIT_FAILED) from error
    print_report(report, as_json=as_json)
    if report.failures:
        raise typer.Exit(_EXIT_FAILED)


async def _connected(namesrv_addr: str, work: Callable[[AdminClient], Awaitable[Report]]) -> Report:
    async with AdminClient(namesrv_addr) as admin:
        return await work(admin)


def print_report(report: Report, *, as_json: bool) -> None:
    """Print a report to stdout and its failures to stderr."""
    if as_json:
        print_json(report.data)
    else:
        for part in report.parts:
            say(part) if isinstance(part, str) else print_table(part)
    for failure in report.failures:
        print_error(failure)


def print_error(reason: str) -> None:
    """Print the reason to stderr as one line."""
    say("mqadmin:", " ".join(reason.split()), err=True)


def with_hint(error: RocketBrokerError) -> str:
    """Return the text of an error and of its notes, which say what to do."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


async def chosen_brokers(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """Return the address of the given broker, or those of all brokers of the cluster, or of all clusters.

    Raises:
        typer.BadParameter: a broker and a cluster are given.
    """
    if broker and cluster:
        raise typer.BadParameter("give either -b (one broker) or -c (all brokers of a cluster), or neither (all)")
    return [broker] if broker else await admin.fetch_broker_addresses(cluster)


async def chosen_masters(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """Return the address of the given broker, or those of the masters of the cluster.

    Raises:
        typer.BadParameter: not exactly one of them is given.
    """
    if broker is not None and cluster is None:
        return [broker]
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
    failures = [f"{address}: {with_hint(error)}" for address, error in failed.items()]
    return Report({"brokers": succeeded}, [f"{address} success" for address in succeeded], failures)


async def ask_each(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[object]]
) -> tuple[list[str], dict[str, RocketBrokerError]]:
    """Send a request to one broker after the other; return the addresses that succeeded, and the others' errors."""
    succeeded, failed = [], {}
    for address in addresses:
        try:
            await ask(address)
        except RocketBrokerError as error:
            failed[address] = error
        else:
            succeeded.append(address)
    return succeeded, failed


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

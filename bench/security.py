"""Cost of TLS and of access control: sends of the official Java client without either and with each, of both sides.

    bench/run security [--rounds 3] [--seconds 45] [--warm 20] [--only plain,tls,acl] [--json FILE] ...
    bench/run security --only guarded,attack,paced --ours-only

bench/README.md explains each figure.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.attack import attacked
from bench.harness import (
    Folder,
    Heap,
    JavaOnly,
    JsonFile,
    OursOnly,
    Report,
    Rounds,
    Row,
    Seconds,
    Warm,
    chosen,
    temporary,
    turns,
)
from bench.load import SCENARIOS, Loads, Scenario, warm_up
from bench.servers import JAVA, OURS, Side, accepted, running
from bench.side_by_side import FIGURES, HEADS, sides
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.request_signature import RequestSigner
from tests.support.raw_client import RawClient
from tests.support.tls_files import TlsFiles

LOAD: Final = "sync64"
PLAIN, TLS, ACL = KINDS = ("plain", "tls", "acl")
# Access control on ports that also talk TLS: alone, and beside a thousand connections a second that fail, where clients
# send all they can, or at half of the rate that they have alone.
GUARDED, ATTACK, PACED = ATTACKS = ("guarded", "attack", "paced")
_PART_OF_RATE: Final = 0.5
_AUTH = "org.apache.rocketmq.auth"
_PROVIDERS = (
    f"authenticationProvider={_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    f"authenticationMetadataProvider={_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    f"authorizationProvider={_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    f"authorizationMetadataProvider={_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
)
_ADMIN, _USER = "bench-admin", "bench-user"


@dataclass(frozen=True, slots=True)
class Kind:
    """Settings of one kind of connections.

    Attributes:
        broker: ``key=value`` lines of the broker.
        both: those of the name server and the broker of our side, which are system properties of Apache's.
        client: options of the client's JVM.
        secrets: secrets of the administrator and of the user that sends; empty if nobody signs.
    """

    broker: Sequence[str] = ()
    both: Sequence[str] = ()
    client: Sequence[str] = ()
    secrets: dict[str, str] = field(default_factory=dict)


def kind_of(name: str, home: Path) -> Kind:
    """Return the settings of a kind; certificates are made in ``home``."""
    if name == TLS:
        files = TlsFiles(home)
        of_client = ["tls.enable=true", "tls.client.authServer=true", f"tls.client.trustCertPath={files.ca}"]
        both = [*(f"{key}={value}" for key, value in files.of_server().items()), "tls.test.mode.enable=false"]
        return Kind(both=both, client=[f"-D{each}" for each in [*of_client, "tls.test.mode.enable=false"]])
    if name in ATTACKS:
        return replace(kind_of(ACL, home), both=kind_of(TLS, home).both)
    if name == ACL:
        known = {user: secrets.token_hex(8) for user in (_ADMIN, _USER)}
        settings = ["authenticationEnabled=true", "authorizationEnabled=true", *_PROVIDERS]
        settings.append(f"initAuthenticationUser={json.dumps({'username': _ADMIN, 'password': known[_ADMIN]})}")
        client = [f"-Dbench.accessKey={_USER}", f"-Dbench.secretKey={known[_USER]}"]
        return Kind(settings, client=client, secrets=known)
    return Kind()


def create_user(address: str, known: dict[str, str]) -> None:
    """Create the user that sends, who has rights by policies, as an administrator needs none.

    Raises:
        BenchError: the broker rejects it.
    """
    signer = RequestSigner(_ADMIN, known[_ADMIN])
    entries = [{"resource": "Topic:*", "actions": ["Pub", "Sub"], "decision": "Allow"}]
    entries.append({"resource": "Group:*", "actions": ["Sub"], "decision": "Allow"})
    policies = {"subject": f"User:{_USER}", "policies": [{"policyType": "Custom", "entries": entries}]}
    with RawClient(address) as client:
        for code, fields, body in (
            (RequestCode.AUTH_CREATE_USER, {"username": _USER}, {"username": _USER, "password": known[_USER]}),
            (RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{_USER}"}, policies),
        ):
            command = request(code, fields, json.dumps(body).encode())
            signer.sign(command)
            accepted(client.ask(code, command.header, bytes(command.body)))


def with_system_properties(side: Side, properties: Sequence[str]) -> Side:
    """Return a side whose JVMs have some system properties, ``KEY=VALUE`` each."""
    options = [f"-D{each}" for each in properties]
    commands = ([command[0], *options, *command[1:]] for command in (side.namesrv_command, side.broker_command))
    return Side(side.name, *commands)


def measure(number: int, name: str, side: Side, folder: Path | None, seconds: int, warm: int, rate: int = 0) -> Row:
    """Measure the load after a warm-up; with a ``rate``, at that many messages a second, its figure ``due``."""
    with temporary(folder) as home:
        kind = kind_of(name, home)
        of_both: Sequence[str] = kind.both
        if side.name == JAVA:
            side, of_both = with_system_properties(side, kind.both), ()
        with running(side, folder, kind.broker, of_both=of_both) as servers:
            if kind.secrets:
                create_user(servers.broker.address, kind.secrets)
            loads = Loads(servers, options=kind.client)
            if warm:
                loads.run("warm_sync", warm_up([])["warm_sync"], warm)
            load = Scenario(f"{SCENARIOS[LOAD].arguments} {rate}") if rate else SCENARIOS[LOAD]
            with attacked(servers.broker.address) if name in {ATTACK, PACED} else nullcontext():
                figures, trouble = loads.run(LOAD, load, seconds)
    return Row(number, side.name, f"{LOAD}_{name}", figures | ({"due": rate} if rate else {}), trouble)


def security(  # noqa: PLR0913, PLR0917 - one argument for each option
    rounds: Rounds = 3,
    seconds: Seconds = 45,
    warm: Warm = 20,
    only: Annotated[str, typer.Option(metavar="A,B", help="Kinds of connections.")] = ",".join(KINDS),
    rate: Annotated[
        int | None, typer.Option(min=1, help=f"Messages a second of {PACED}; by default half of {GUARDED}'s.")
    ] = None,
    java_only: JavaOnly = False,
    ours_only: OursOnly = False,
    heap: Heap = "2g",
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure sends without TLS and access control and with each, of Apache RocketMQ 5.5.0 and ours in turn."""
    names = chosen(only, [*KINDS, *ATTACKS], "kind")
    if PACED in names and rate is None and GUARDED not in names[: names.index(PACED)]:
        raise typer.BadParameter(f"{PACED} needs the rate without an attack: name {GUARDED} before it, or give --rate")
    both = sides(java_only=java_only, ours_only=ours_only, heap=heap)
    report = Report(rounds, seconds=seconds, warm=warm, kinds=",".join(names))
    for number, (name, side) in turns(rounds, [(name, side) for name in names for side in both]):
        alone = report.median(side.name, f"{LOAD}_{GUARDED}", "rate")
        due = rate or round((alone or 0) * _PART_OF_RATE)
        if name != PACED:
            report.add(measure(number, name, side, folder, seconds, warm))
        elif due:
            report.add(measure(number, name, side, folder, seconds, warm, due))
        else:
            report.add(Row(number, side.name, f"{LOAD}_{name}", {}, f"{GUARDED} had no rate"))
    print("\n" + report.comparison(JAVA, OURS, FIGURES, HEADS))
    for line in costs(report, names):
        print(line)
    report.end(json_file)


def costs(report: Report, names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each side and kind on what it costs."""
    for side in (JAVA, OURS):
        plain = report.median(side, f"{LOAD}_{PLAIN}", "cpu")
        for name in names:
            cpu = report.median(side, f"{LOAD}_{name}", "cpu")
            if name != PLAIN and plain is not None and cpu is not None:
                yield f"{name} adds to the CPU time of a message of {side}: {cpu - plain:.2f} µs"
        quiet, under, paced = (report.median(side, f"{LOAD}_{name}", "rate") for name in ATTACKS)
        if quiet and under is not None:
            yield f"under attack a client of {side} keeps {under / quiet:.0%} of its rate: {under:,.0f} of {quiet:,.0f}"
        due, p99 = (report.median(side, f"{LOAD}_{PACED}", figure) for figure in ("due", "p99"))
        if paced is not None and due and p99 is not None:
            part = f"{paced / due:.1%} of them, p99 {p99:.2f} ms"
            yield f"under attack a client of {side} that is to send {due:,.0f} messages a second sends {part}"

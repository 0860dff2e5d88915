"""Each kind of connection is measured on both sides; the user that sends has no more rights than it needs."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import harness, load, security, side_by_side
from bench.harness import Report, Row, application
from bench.load import Outcome
from bench.security import costs, create_user, kind_of
from bench.servers import Running, Server, Side
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from tests.support.raw_client import RawClient


class Bench:
    """The command over servers and loads that are made up."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[tuple[Side, Sequence[str], Sequence[str]]] = []
        self.commands: list[Sequence[str]] = []
        self.rates: list[list[str]] = []
        self.users: list[str] = []

    @contextmanager
    def running(
        self, side: Side, _folder: Path | None, properties: Sequence[str], *, of_both: Sequence[str]
    ) -> Iterator[Running]:
        self.started.append((side, properties, of_both))
        yield Running("127.0.0.1:9", Server("127.0.0.1:8", 1, 0.5, 0.0, Path()), self.home)

    def run_load(self, arguments: list[str], _home: Path, limit: float, command: Sequence[str] = ()) -> Outcome:
        assert limit > 0
        self.commands.append(command)
        self.rates.append(arguments[7:])
        return Outcome(rate=100.0, p50=1.0, p99=2.0, done=50)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setattr(load, "run_load", made.run_load)
    monkeypatch.setattr(load, "prepare", lambda: None)
    monkeypatch.setattr(load, "java_command", lambda _home, options: ["java", *options])
    monkeypatch.setattr(security, "running", made.running)
    monkeypatch.setattr(security, "create_user", lambda address, _known: made.users.append(address))
    monkeypatch.setattr(harness, "heading", lambda **_: {"commit": "abc"})
    monkeypatch.setattr(side_by_side, "java_side", lambda heap: Side("java", ["java", heap], ["java", heap]))
    return made


def run(*arguments: str) -> Any:
    return CliRunner().invoke(application("security"), ["--rounds", "1", "--warm", "0", *arguments])


def test_each_kind_is_measured_on_both_sides(bench: Bench):
    done = run()

    assert done.exit_code == 0, done.output
    assert [side.name for side, *_ in bench.started] == ["java", "ours"] * 3
    for name in security.KINDS:
        assert f"| sync64_{name} | rate | 100.00 | 100.00 | 1.00 |" in done.output
    assert bench.users == ["127.0.0.1:8"] * 2


def test_the_same_servers_are_measured_with_and_without_an_attack(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    attacked: list[str] = []

    def note(address: str) -> nullcontext[None]:
        attacked.append(address)
        return nullcontext()

    monkeypatch.setattr(security, "attacked", note)
    done = run("--only", "guarded,attack", "--ours-only")

    assert (done.exit_code, attacked) == (0, ["127.0.0.1:8"])
    (_, quiet, quiet_both), (_, under, under_both) = bench.started
    names = [[line.partition("=")[0] for line in each] for each in (quiet, under, quiet_both, under_both)]
    assert (names[0], names[2]) == (names[1], names[3])
    assert "authorizationEnabled" in names[0]
    assert "tls.server.certPath" in names[2]
    assert "under attack a client of ours keeps 100% of its rate: 100 of 100" in done.output


@pytest.mark.parametrize(("more", "due"), [((), 50), (("--rate", "200"), 200)])
def test_a_paced_client_sends_at_half_of_the_rate_without_an_attack_or_at_a_given_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, more: Sequence[str], due: int
):
    attacked: list[str] = []

    def note(address: str) -> nullcontext[None]:
        attacked.append(address)
        return nullcontext()

    monkeypatch.setattr(security, "attacked", note)
    done = run("--only", "guarded,paced", "--ours-only", *more)

    assert (done.exit_code, bench.rates, len(attacked)) == (0, [[], [str(due)]], 1)
    part = f"{100 / due:.1%} of them, p99 2.00 ms"
    assert f"a client of ours that is to send {due} messages a second sends {part}" in done.output


def test_a_paced_client_without_a_rate_is_refused(bench: Bench):
    done = run("--only", "paced,guarded", "--ours-only")

    assert done.exit_code == 2
    assert "give --rate" in " ".join(done.output.split())
    assert not bench.started


def test_both_sides_have_the_same_certificate_settings(bench: Bench):
    run("--only", "tls")

    (java, _, of_both), (_, _, ours) = bench.started
    options = [line.removeprefix("-D") for line in java.broker_command[1:-1]]
    assert of_both == ()
    assert [line.partition("=")[0] for line in options] == [line.partition("=")[0] for line in ours]
    assert java.namesrv_command == java.broker_command
    assert all(any(option.startswith("-Dtls.client.trustCertPath=") for option in each) for each in bench.commands)


def test_the_settings_of_tls_name_files_that_exist(tmp_path: Path):
    kind = kind_of("tls", tmp_path)

    paths = [line.partition("=")[2] for line in [*kind.both, *kind.client] if "Path=" in line]
    assert len(paths) == 3
    assert all(Path(path).is_file() for path in paths)


def test_nobody_signs_without_access_control(bench: Bench):
    run("--only", "plain", "--ours-only")

    assert (bench.users, bench.commands) == ([], [()])
    assert bench.started[0][1:] == ((), ())


def test_the_user_that_sends_may_send_and_consume_alone(tmp_path: Path):
    kind = kind_of("acl", tmp_path)
    lines = dict(line.split("=", 1) for line in kind.broker)
    assert json.loads(lines["initAuthenticationUser"])["password"] == kind.secrets["bench-admin"]

    with RocketMQServer(lines) as mq:
        create_user(mq.broker_addr, kind.secrets)
        command = request(RequestCode.SEND_MESSAGE_V2, {"b": "T"})
        RequestSigner("bench-user", kind.secrets["bench-user"]).sign(command)
        with RawClient(mq.broker_addr) as client:
            answers = [client.ask(code, command.header) for code in (command.code, RequestCode.GET_BROKER_CONFIG)]

    # The user may send, which lacks most of its header here; the settings are for others.
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION]


def test_costs_are_differences_of_medians():
    report = Report.__new__(Report)
    report.rows = [
        Row(number, side, f"sync64_{name}", {"cpu": cpu + number})
        for number in (1, 2, 3)
        for side, name, cpu in (("java", "plain", 10), ("java", "acl", 22), ("ours", "plain", 5), ("ours", "acl", 7.5))
    ]

    assert list(costs(report, ["plain", "tls", "acl"])) == [
        "acl adds to the CPU time of a message of java: 12.00 µs",
        "acl adds to the CPU time of a message of ours: 2.50 µs",
    ]

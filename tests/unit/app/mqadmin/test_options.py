"""Options that the decorator adds: --watch, --yes, --dry-run, and flags that a function takes itself."""

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from docs._ext import mqadmin_index
from rocketbroker.app import terminal
from rocketbroker.app.command_line import new_app
from rocketbroker.app.mqadmin import command
from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ClientError
from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.admin_stage import admin_stage
from tests.support.pseudo_terminal import pseudo_terminal
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of


class Terminal(io.StringIO):
    """Input that someone types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
async def names() -> AsyncIterator[ScriptedServer]:
    topics: Script = lambda _fields, _body: response(body=TopicList(["T"]).encode())  # noqa: E731
    deleted: Script = lambda _fields, _body: response()  # noqa: E731
    scripts: dict[int, Script] = {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: deleted,
    }
    async with (
        ScriptedServer({RequestCode.DELETE_TOPIC_IN_BROKER: deleted}) as broker,
        name_server({"T": route_of({"broker-a": broker.address})}, scripts) as server,
    ):
        yield server


async def call(names: ScriptedServer, *args: str) -> Any:
    return await asyncio.to_thread(CliRunner().invoke, app, [*args, "-n", names.address])


def stop_after(rounds: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let nothing be waited for, and press Ctrl-C in the last of these rounds; return the pauses."""
    pauses: list[float] = []

    def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == rounds:
            raise KeyboardInterrupt

    # Not of the whole process: its other threads sleep, too.
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    return pauses


async def test_watch_repeats_until_it_is_interrupted(names: ScriptedServer, monkeypatch: pytest.MonkeyPatch):
    pauses = stop_after(3, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["mqadmin", "topicList"])

    done = await call(names, "topicList", "--watch", "0.5")

    assert (done.exit_code, pauses) == (130, [0.5] * 3)
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines[1::2] == ["T"] * 3
    assert all("  Every 0.5 s until Ctrl-C: mqadmin topicList" in line for line in lines[::2])
    assert "\x1b" not in done.stdout
    done = await call(names, "topicList", "--watch", "0.01")
    assert (done.exit_code, "0.01 is not in the range" in done.stderr or "0.1" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "words", ["clusterList --watch inf", "clusterList --watch nan", "clusterList -i 99999999999999999999"]
)
async def test_a_pause_without_end_is_wrong_usage(names: ScriptedServer, words: str):
    done = await call(names, *words.split())
    assert (done.exit_code, "86400" in done.stderr) == (2, True)


async def test_the_heading_of_watch_is_the_command_line(names: ScriptedServer, monkeypatch: pytest.MonkeyPatch):
    stop_after(1, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["/bin/mqadmin", "--cluster", "my prod", "topicList", "--watch", "9"])
    done = await call(names, "topicList", "--watch", "9")
    assert done.stdout.splitlines()[0].endswith(
        "Every 9 s until Ctrl-C: mqadmin --cluster 'my prod' topicList --watch 9"
    )


async def test_watch_goes_on_while_no_server_answers(names: ScriptedServer, monkeypatch: pytest.MonkeyPatch):
    stop_after(2, monkeypatch)
    await names.stop()

    done = await call(names, "topicList", "--watch", "1", "--json")

    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr.count("no name server answers") == 2


async def test_an_interval_and_watch_contradict(names: ScriptedServer):
    done = await call(names, "clusterList", "--watch", "1", "-i", "1")
    assert (done.exit_code, "give either -i or --watch" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("typed", "deleted"), [("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("", False)]
)
async def test_a_deletion_is_confirmed_on_a_terminal(
    names: ScriptedServer, typed: str, deleted: bool, monkeypatch: pytest.MonkeyPatch
):
    # CliRunner replaces sys.stdin, so what asks is given the terminal.
    asked = []

    def confirmed(question: str, where: str) -> bool:
        asked.append((question, where))
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        return terminal.confirmed(question, where)

    monkeypatch.setattr(command, "confirmed", confirmed)
    done = await call(names, "deleteTopic", "-t", "T", "-c", "DefaultCluster")

    assert asked == [("Delete topic T and its messages from cluster DefaultCluster?", names.address)]
    assert f"Delete topic T and its messages from cluster DefaultCluster? ({names.address}) [y/N] " in done.stderr
    assert (done.exit_code, bool(names.of(RequestCode.DELETE_TOPIC_IN_NAMESRV))) == (0 if deleted else 1, deleted)
    assert ("mqadmin: nothing was changed" in done.stderr) is not deleted


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ("cleanUnusedTopic", "Delete the queues of deleted topics on all brokers of all clusters?"),
        ("cleanExpiredCQ -c C", "Delete queue and index files of deleted messages on all brokers of cluster C?"),
        ("deleteExpiredCommitLog -b h:1", "Delete expired commit log files on h:1?"),
        ("updateOrderConf -t T -m delete", "Delete the order configuration of topic T?"),
        ("updateOrderConf -t T -m get", None),
    ],
)
async def test_each_deletion_asks(
    names: ScriptedServer, words: str, question: str | None, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def confirmed(text: str, _where: str) -> bool:
        asked.append(text)
        return False

    monkeypatch.setattr(command, "confirmed", confirmed)
    done = await call(names, *words.split())
    assert (asked, "nothing was changed" in done.stderr) == ([question] if question else [], question is not None)


async def test_yes_asks_nothing(names: ScriptedServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(command, "confirmed")
    done = await call(names, "deleteTopic", "-t", "T", "-c", "DefaultCluster", "--yes")
    assert done.exit_code == 0
    assert len(names.of(RequestCode.DELETE_TOPIC_IN_NAMESRV)) == 1


async def test_a_dry_run_shows_the_requests_and_sends_none(names: ScriptedServer):
    arguments = ("deleteTopic", "-t", "T", "-c", "DefaultCluster", "--dry-run")
    done = await call(names, *arguments)

    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert first.startswith("would send DELETE_TOPIC_IN_BROKER (215) to 127.0.0.1:")
    assert second.startswith(f"would send DELETE_TOPIC_IN_NAMESRV (216) to {names.address}: topic=T")
    planned = json.loads((await call(names, *arguments, "--json")).stdout)["requests"]
    assert [each["code"] for each in planned] == [215, 216]
    assert planned[1]["fields"] == {"topic": "T", "clusterName": "DefaultCluster"}
    assert names.of(RequestCode.DELETE_TOPIC_IN_NAMESRV) == []


async def test_a_dry_run_says_when_it_cannot_know_what_follows(names: ScriptedServer):
    done = await call(names, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", "0", "--dry-run")

    assert done.exit_code == 0
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("would send INVOKE_BROKER_TO_RESET_OFFSET (222) to 127.0.0.1:")
    assert last == "what follows depends on the answer, and is not shown"


async def test_a_dry_run_reports_what_fails_beside_the_plan():
    changes: dict[int, Script] = {RequestCode.GET_BROKER_CONFIG: lambda _fields, _body: response(body=b"traceOn=false")}
    async with admin_stage({"a": {}, "b": changes}) as stage:
        words = ("updateBrokerConfig", "-c", "DefaultCluster", "-k", "traceOn", "-v", "true", "--dry-run")
        done = await stage.call(*words)
        as_json = await stage.call(*words, "--json")
        assert stage.brokers["b"].of(RequestCode.UPDATE_BROKER_CONFIG) == []

    assert (done.code, as_json.code) == (1, 1)
    assert done.out.startswith(f"would send UPDATE_BROKER_CONFIG (25) to {stage.address('b')}: body=traceOn=true")
    assert done.err.startswith(f"mqadmin: {stage.address('a')}: ")
    assert [each["code"] for each in json.loads(as_json.out)["requests"]] == [25]


async def test_a_dry_run_shows_the_plan_up_to_an_error(names: ScriptedServer, monkeypatch: pytest.MonkeyPatch):
    async def fail(admin: AdminClient, topic: str, cluster: str | None = None) -> None:
        raise ClientError("no luck")

    monkeypatch.setattr(AdminClient, "delete_topic_in_name_server", fail)
    done = await call(names, "deleteTopic", "-t", "T", "-c", "DefaultCluster", "--dry-run")

    assert (done.exit_code, done.stderr) == (1, "mqadmin: no luck\n")
    assert done.stdout.startswith("would send DELETE_TOPIC_IN_BROKER (215) to 127.0.0.1:")


async def test_a_dry_run_that_cannot_begin_is_a_failure(names: ScriptedServer):
    done = await call(names, "deleteTopic", "-t", "T", "-c", "Other", "--dry-run")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "cluster 'Other' does not exist" in done.stderr


async def test_ctrl_c_says_which_brokers_have_done_it(capsys: pytest.CaptureFixture[str]):
    async def ask(address: str) -> None:
        if address == "c:1":
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await command.ask_each(["a:1", "b:1", "c:1", "d:1"], ask)

    line = "mqadmin: interrupted at c:1, which may have done it or not; a:1, b:1 did it before\n"
    assert capsys.readouterr().err == line


def test_a_function_that_takes_the_flags_is_given_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "REGISTERED", {})

    @sub_command("stream")
    async def stream(admin: AdminClient, as_json: bool, yes: bool, dry_run: bool) -> Report:
        """Print as it comes."""
        terminal.say(as_json, yes, dry_run)
        return Report(None, [])

    ours = new_app()
    ours.command("stream")(command.REGISTERED["stream"].function)

    for flags, printed in (([], "False False False"), (["--json", "--yes", "--dry-run"], "True True True")):
        done = CliRunner().invoke(ours, [*flags, "-n", "127.0.0.1:1"])
        assert (done.exit_code, done.stdout) == (0, f"{printed}\n")


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    with terminal.progress("messages", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")
    with pseudo_terminal() as (written, shown), os.fdopen(os.dup(written), "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with terminal.progress("messages [bold]\x1b", 10) as advance:
            advance(7)
        monkeypatch.undo()
    assert b"messages [bold]\\x1b" in shown
    assert b"7/10" in shown


def test_the_index_has_the_sub_commands_as_their_decorators_have_them():
    assert mqadmin_index.INDEX.read_text() == mqadmin_index.render(), "run: bin/manual"
    summaries = [each.summary for each in mqadmin_index.all_sub_commands().values()]
    assert [each for each in summaries if len(each) > 76 or not each.endswith(".")] == []

"""The sub-commands that move groups and ask their clients, against scripted servers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import Connection, ConsumerConnection
from rocketbroker.codec.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.admin_schemas import checked_json
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of

QUEUE = MessageQueue("T", "broker-a", 1)
ROW = {"brokerName": "broker-a", "queueId": 1, "offset": 7}
CLIENTS = ConsumerConnection(
    [Connection("one", "192.0.2.2:5", "JAVA", 513), Connection("two", "192.0.2.3:5", "JAVA", 401)]
)


def subscribed(text: str) -> bytes:
    retry = {"topic": "%RETRY%CG", "subString": "*"}
    return json.dumps({"subscriptionSet": [retry, {"topic": "T", "subString": text}]}).encode()


class Stage:
    """A broker with topic T and group CG, and mqadmin to call; ``scripts`` may be changed."""

    def __init__(self, scripts: dict[int, Script]) -> None:
        self.scripts = scripts
        self.address = ""
        self.broker = ScriptedServer({code: partial(self._answer, code) for code in scripts})

    def _answer(self, code: int, fields: dict[str, str], body: bytes) -> Command | None:
        return self.scripts[code](fields, body)

    async def call(self, *args: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*args, "-n", self.address])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    async def json(self, *args: str) -> Any:
        code, out, err = await self.call(*args, "--json")
        assert (code, err) == (0, "")
        return checked_json(args[0], out)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    told = {"one": subscribed("a"), "two": subscribed("a")}
    scripts: dict[int, Script] = {
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: lambda _fields, _body: response(
            body=ResetOffsetBody({QUEUE: 7}).encode()
        ),
        RequestCode.CLONE_GROUP_OFFSET: lambda _fields, _body: response(),
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: lambda _fields, _body: response(
            body=GetConsumerStatusBody(consumer_table={"one": {QUEUE: 7}}).encode()
        ),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: lambda _fields, _body: response(body=CLIENTS.encode()),
        RequestCode.GET_CONSUMER_RUNNING_INFO: lambda fields, _body: response(body=told[fields["clientId"]]),
    }
    found = Stage(scripts)
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(found.broker)
        route = route_of({"broker-a": broker.address})
        names = await stack.enter_async_context(name_server({"T": route, "%RETRY%CG": route}))
        found.address = names.address
        yield found


async def test_reset_to_a_time(stage: Stage):
    asked = stage.broker.of
    assert await stage.json("resetOffsetByTime", "-g", "CG", "-t", "T", "-s", "1234", "-f", "false") == {
        "group": "CG",
        "topic": "T",
        "queues": [ROW],
    }
    (fields,) = [each.fields for each in asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)]
    assert fields == {"group": "CG", "topic": "T", "timestamp": "1234", "isForce": "false", "queueId": "-1"}
    code, out, _ = await stage.call("resetOffsetByTime", "-g", " CG ", "-t", " T ", "-s", "now")
    assert (code, out.split()[-3:]) == (0, ["broker-a", "1", "7"])
    assert asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)[-1].fields["isForce"] == "true"
    await stage.json("resetOffsetByTime", "-g", "CG", "-t", "T", "-s", "-1")
    assert asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)[-1].fields["timestamp"] == "-1"


@pytest.mark.parametrize("by_name", [True, False])
async def test_reset_of_one_queue(stage: Stage, *, by_name: bool):
    broker = "broker-a" if by_name else stage.broker.address
    one = ("resetOffsetByTime", "-g", "CG", "-t", "T", "-b", broker, "-q", "1")
    assert (await stage.json(*one, "-o", "7"))["queues"] == [ROW]
    await stage.json(*one, "-s", "1234")
    fields = [each.fields for each in stage.broker.of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)]
    assert [(each["queueId"], each["offset"], each["timestamp"]) for each in fields] == [
        ("1", "7", "0"),
        ("1", "-1", "1234"),
    ]


async def test_a_broker_that_is_not_there_is_named_with_those_that_are(stage: Stage):
    code, _, err = await stage.call("resetOffsetByTime", "-g", "CG", "-t", "T", "-b", "b", "-q", "1", "-s", "0")
    assert (code, err) == (1, "mqadmin: no registered broker is named 'b'; there are broker-a\n")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["-s", "yesterday"], "'yesterday' is not a time; expected 2026-11-22"),
        (["-s", "2026-11-21#09:59:24"], "is not a time"),
        ([], "give a time to move to (-s)"),
        (["-s", "-2"], "give a time to move to (-s), or -1 for the end"),
        (["-s", "0", "-b", "127.0.0.1:1"], "need each other"),
        (["-s", "0", "-q", "1"], "need each other"),
        (["-o", "1"], "-o (offset) needs both"),
    ],
)
async def test_wrong_usage_of_a_reset(stage: Stage, options: list[str], text: str):
    code, _, err = await stage.call("resetOffsetByTime", "-g", "CG", "-t", "T", *options)
    assert code == 2
    assert text in " ".join(err.replace("│", " ").split())
    assert stage.broker.of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET) == []


async def test_a_reset_that_is_rejected_is_a_failure(stage: Stage):
    stage.scripts[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = lambda _fields, _body: response(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group CG does not exist"
    )
    code, out, err = await stage.call("resetOffsetByTime", "-g", "CG", "-t", "T", "-s", "0")
    assert (code, out) == (1, "")
    assert "Group CG does not exist" in err


async def test_skip_accumulated_message(stage: Stage):
    assert (await stage.json("skipAccumulatedMessage", "-g", "CG", "-t", "T"))["queues"] == [ROW]
    (asked,) = stage.broker.of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert (asked.fields["timestamp"], asked.fields["isForce"]) == ("-1", "true")


async def test_clone_group_offset(stage: Stage):
    data = await stage.json("cloneGroupOffset", "-s", "CG", "-d", "New", "-t", "T")
    assert data == {"srcGroup": "CG", "destGroup": "New", "topic": "T"}
    code, out, _ = await stage.call("cloneGroupOffset", "-s", "CG", "-d", "New", "-t", "T", "-o", "false")
    assert (code, out) == (0, "clone group offset success. srcGroup[CG], destGroup=[New], topic[T]\n")
    asked = [each.fields for each in stage.broker.of(RequestCode.CLONE_GROUP_OFFSET)]
    assert asked[0] == {"srcGroup": "CG", "destGroup": "New", "topic": "T", "offline": "true"}
    assert asked[1]["offline"] == "false"


async def test_get_consumer_status(stage: Stage):
    data = await stage.json("getConsumerStatus", "-g", "CG", "-t", "T", "-i", "one")
    assert data == {"group": "CG", "topic": "T", "clients": [{"clientId": "one", "queues": [ROW]}]}
    (asked,) = stage.broker.of(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    assert asked.fields == {"topic": "T", "group": "CG", "clientAddr": "one"}
    _, out, _ = await stage.call("getConsumerStatus", "-g", "CG", "-t", "T")
    assert out.split()[-4:] == ["one", "broker-a", "1", "7"]


async def test_clients_that_agree(stage: Stage):
    data = await stage.json("consumerStatus", "-g", "CG")
    assert (data["same"], data["conflict"]) == (True, "")
    assert data["clients"][0] == {
        "clientId": "one",
        "clientAddr": "192.0.2.2:5",
        "version": "V5_5_0",
        "subscriptions": {"T": "a"},
    }
    _, out, _ = await stage.call("consumerStatus", "-g", "CG")
    assert out.splitlines()[-1] == "Same subscription in the same group of consumer"


@pytest.mark.proves(
    "Consumers",
    "clients of one group that subscribe to different things are named in the log, counted, and shown by "
    "`consumerStatus`",
)
@pytest.mark.parametrize("who", ["clients", "broker"])
async def test_clients_that_differ(stage: Stage, who: str):
    if who == "clients":
        stage.scripts[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda fields, _body: response(
            body=subscribed(fields["clientId"])
        )
    else:
        stage.scripts[RequestCode.GET_CONSUMER_CONNECTION_LIST] = lambda _fields, _body: response(
            0, "one wants a and two wants b", None, CLIENTS.encode()
        )
    assert not (await stage.json("consumerStatus", "-g", "CG"))["same"]
    code, out, _ = await stage.call("consumerStatus", "-g", "CG")
    assert code == 0
    assert "WARN: Different subscription in the same group of consumer!!!" in out
    assert ("one wants a and two wants b" in out) == (who == "broker")


@pytest.mark.parametrize("body", [b'{"subscriptionSet":1}', b"{}", b"[]"])
async def test_a_client_that_does_not_tell_is_named(stage: Stage, body: bytes):
    stage.scripts[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda fields, _body: response(
        body=subscribed("a") if fields["clientId"] == "one" else body
    )
    code, out, err = await stage.call("consumerStatus", "-g", "CG")
    assert code == 1
    assert "two" in out
    assert err.startswith("mqadmin: two: ConsumerRunningInfo")

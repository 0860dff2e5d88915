"""HTTP requests that control a server for tests."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from rocketbroker.client import Message, Producer, SendFailedError
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import ConfigError
from rocketbroker.testing import RocketMQServer
from rocketbroker.testing.control_server import MOST_BODY_BYTES, ControlServer
from tests.support.leaks import grown, held
from tests.support.ports import LOOPBACK


class Control:
    """A server, and requests to it."""

    def __init__(self) -> None:
        self.mq = RocketMQServer()
        self.server = ControlServer(self.mq, 0)

    async def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        text = body if isinstance(body, str) else json.dumps(body) if body is not None else None
        return await asyncio.to_thread(self._ask, method, path, text, headers or {})

    def _ask(self, method: str, path: str, text: str | None, headers: dict[str, str]) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=20)
        try:
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    async def send(self, *bodies: bytes, **options: Any) -> None:
        async with Producer("shop", self.mq.namesrv_addr, retry_times_when_send_failed=0) as producer:
            for body in bodies:
                await producer.send(Message("Orders", body, **options))


@pytest.fixture
async def control() -> AsyncIterator[Control]:
    control = Control()
    await control.server.start()
    yield control
    await control.server.stop()


async def test_the_state_names_the_addresses(control: Control):
    status, state = await control.ask("GET", "/")

    assert (status, state["namesrvAddr"], state["brokerAddr"]) == (
        200, control.mq.namesrv_addr, control.mq.broker_addr,
    )  # fmt: skip
    assert abs(state["timeMs"] - control.mq.clock.time_ms()) < 60_000


async def test_the_clock_is_advanced(control: Control):
    before = control.mq.clock.time_ms()
    await control.send(b"remind", delay_time_level=18)
    control.mq.assert_messages("Orders", [])

    status, answer = await control.ask("POST", "/clock/advance", {"seconds": 7200})

    assert status == 200
    assert answer["timeMs"] >= before + 7_200_000
    await control.mq.eventually(lambda: control.mq.assert_messages("Orders", [b"remind"]))


FAULTS = [
    ({"fault": "answer", "code": "SYSTEM_BUSY", "times": None, "to": ["SEND_MESSAGE_V2", 10]}, []),
    ({"fault": "answer", "code": ResponseCode.SYSTEM_BUSY, "remark": "not now", "broker": "broker-a"}, []),
    ({"fault": "dropAnswers"}, [b"1"]),
    ({"fault": "ignoreRequests", "times": 1}, []),
    ({"fault": "cutConnections"}, [b"1"]),
    ({"fault": "delayAnswers", "seconds": 3600}, [b"1"]),
]


@pytest.mark.parametrize(("fault", "stored"), FAULTS, ids=lambda each: each["fault"] if isinstance(each, dict) else "")
async def test_a_fault_is_ordered_and_taken_back(control: Control, fault: dict[str, Any], stored: list[bytes]):
    await control.send(b"0")
    assert await control.ask("POST", "/faults", fault) == (200, {})
    async with Producer("shop", control.mq.namesrv_addr, retry_times_when_send_failed=0) as producer:
        await producer.fetch_publish_queues("Orders")
        with pytest.raises(SendFailedError):
            await producer.send(Message("Orders", b"1"), timeout_s=0.5)
        control.mq.assert_messages("Orders", [b"0", *stored])
        assert await control.ask("DELETE", "/faults") == (200, {})
        await producer.send(Message("Orders", b"2"))
    control.mq.assert_messages("Orders", [b"0", *stored, b"2"])


async def test_faults_for_pulls_leave_sends_alone(control: Control):
    assert await control.ask("POST", "/faults", {"fault": "ignoreRequests", "to": "pulls"}) == (200, {})
    await control.send(b"1")
    control.mq.assert_messages("Orders", [b"1"])


async def test_a_reset_leaves_nothing(control: Control):
    await control.send(b"1")
    await control.ask("POST", "/clock/advance", {"seconds": 7200})
    before = await control.ask("GET", "/")
    assert await control.ask("POST", "/reset") == (200, {})

    control.mq.assert_messages("Orders", [])
    after = await control.ask("GET", "/")
    assert after[1]["namesrvAddr"] == before[1]["namesrvAddr"]
    assert after[1]["timeMs"] < before[1]["timeMs"]


async def test_a_server_is_disturbed_and_mended(control: Control):
    await control.send(b"1")
    assert await control.ask("POST", "/disk/fill") == (200, {})
    with pytest.raises(SendFailedError, match="DISK_FULL"):
        await control.send(b"2")
    assert await control.ask("POST", "/disk/free") == (200, {})
    assert await control.ask("POST", "/connections/cut", {}) == (200, {})
    assert await control.ask("POST", "/broker/stop") == (200, {})
    assert await control.ask("POST", "/broker/start", {"broker": "broker-a"}) == (200, {})
    control.mq.assert_messages("Orders", [b"1"])
    assert await control.ask("POST", "/flush") == (200, {})
    await control.send(b"3")
    assert await control.ask("POST", "/broker/restart", {"loseUnflushed": True}) == (200, {})
    control.mq.assert_messages("Orders", [b"1"])


async def test_a_frozen_server_says_so_until_it_is_thawed(control: Control):
    assert await control.ask("POST", "/freeze") == (200, {})
    assert await control.ask("GET", "/") == (409, {"error": "RocketMQServer is frozen; thaw it first"})
    assert await control.ask("POST", "/thaw") == (200, {})
    await control.send(b"1")


WRONG = [
    ("GET", "/clock", None, 404, "no /clock; there are /, /clock/advance"),
    ("GET", "/clock/advance", None, 405, "GET /clock/advance: use POST"),
    ("PUT", "/faults", None, 501, "Unsupported method ('PUT')"),
    ("POST", "/clock/advance", {"seconds": -1}, 400, "cannot advance by -1.0 s"),
    ("POST", "/clock/advance", {"seconds": 1e12}, 400, "give 0 to 315,360,000 s"),
    ("POST", "/clock/advance", {"second": 1}, 400, "unknown field `second`"),
    ("POST", "/clock/advance", None, 400, "missing required field `seconds`"),
    ("POST", "/clock/advance", "{", 400, "/clock/advance: Input data was truncated"),
    ("POST", "/faults", {"fault": "answers"}, 400, "a fault is one of answer, delayAnswers, dropAnswers"),
    ("POST", "/faults", {"fault": "answer"}, 400, "missing required field `code`"),
    ("POST", "/faults", {"fault": "answer", "code": "BUSY"}, 400, "'BUSY' is no ResponseCode; give a name such as"),
    ("POST", "/faults", {"fault": "dropAnswers", "to": "all"}, 400, "to='all'; give sends, pulls, or a list"),
    ("POST", "/faults", {"fault": "dropAnswers", "times": 0}, 400, "Expected `int` >= 1"),
    ("POST", "/faults", {"fault": "dropAnswers", "broker": "b"}, 400, "no broker 'b'; there are broker-a"),
    ("POST", "/broker/stop", {"broker": "b"}, 400, "no broker 'b'; there are broker-a"),
    ("POST", "/reset", {"now": True}, 400, "unknown field `now`"),
    ("POST", "/reset", "x" * (MOST_BODY_BYTES + 1), 400, "send a body of 0 to 65,536 bytes"),
]


async def test_wrong_requests_are_explained(control: Control):
    for method, path, body, status, text in WRONG:
        found = await control.ask(method, path, body)

        assert (found[0], text in found[1]["error"]) == (status, True), f"{method} {path} {body}: {found}"


@pytest.mark.parametrize("headers", [{"Origin": "https://shop.example"}, {"Host": "shop.example:80"}])
async def test_web_pages_are_rejected(control: Control, headers: dict[str, str]):
    status, answer = await control.ask("POST", "/reset", headers=headers)

    assert status == 403
    assert "web pages may not use this port" in answer["error"]


async def test_nothing_is_left_at_the_end():
    for _ in range(2):  # the first imports
        before = held()
        control = Control()
        await control.server.start()
        await control.ask("GET", "/")
        await control.server.stop()
    assert grown(before) == []


async def test_a_control_port_in_use_is_named(control: Control):
    port = int(control.server.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=rf"cannot listen on {LOOPBACK}:{port}: .* choose another --control-port"):
        await ControlServer(RocketMQServer(), port).start()

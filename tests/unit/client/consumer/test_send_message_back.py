"""Messages given back: by their offset, or as a copy."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.consumer.send_message_back import SendMessageBack
from rocketbroker.codec.message.message_properties import decode_properties
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.consumer_parts import QUEUE, message
from tests.support.scripted_server import ScriptedServer, name_server, route_of


class Stage:
    def __init__(self) -> None:
        self.client: ClientInstance
        self.refused: set[int] = set()
        self.broker = ScriptedServer(
            {
                RequestCode.CONSUMER_SEND_MSG_BACK: lambda _fields, _body: self.answer(36),
                RequestCode.SEND_MESSAGE_V2: lambda _fields, _body: self.answer(310),
            }
        )

    def answer(self, code: int) -> Command:
        return response(ResponseCode.SYSTEM_ERROR, "refused") if code in self.refused else response()

    async def send_back(self, delay_level: int) -> bool:
        given = message(7, b"body", TAGS="a", TRAN_MSG="true")
        given.reconsume_times = 2
        return await SendMessageBack(self.client, "CG", 16).send_back(QUEUE, given, delay_level)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage()
        await stack.enter_async_context(stage.broker)
        names = await stack.enter_async_context(name_server({"T": route_of({"broker-a": stage.broker.address})}))
        stage.client = await stack.enter_async_context(ClientInstance(names.address))
        yield stage


async def test_the_broker_gets_the_offset_and_the_level(stage: Stage):
    assert await stage.send_back(3)
    (asked,) = stage.broker.of(RequestCode.CONSUMER_SEND_MSG_BACK)
    given = {name: asked.fields[name] for name in ("offset", "group", "delayLevel", "originTopic", "maxReconsumeTimes")}
    assert given == {
        "offset": "700", "group": "CG", "delayLevel": "3", "originTopic": "T", "maxReconsumeTimes": "16",
    }  # fmt: skip


@pytest.mark.parametrize(("level", "delay", "times"), [(0, "5", "3"), (2, "2", "3"), (-1, None, "17")])
async def test_a_copy_goes_to_the_retry_topic_when_the_broker_refuses(
    stage: Stage, level: int, delay: str | None, times: str
):
    stage.refused = {36}
    assert await stage.send_back(level)
    (asked,) = stage.broker.of(RequestCode.SEND_MESSAGE_V2)
    properties = decode_properties(asked.fields["i"].encode())
    assert (asked.body, asked.fields["b"], asked.fields["j"], asked.fields["l"]) == (b"body", "%RETRY%CG", times, "16")
    assert (properties["RETRY_TOPIC"], properties["TAGS"], properties.get("DELAY")) == ("T", "a", delay)
    assert "TRAN_MSG" not in properties
    assert properties["ORIGIN_MESSAGE_ID"]


async def test_a_message_that_nobody_takes_is_logged(stage: Stage, caplog: pytest.LogCaptureFixture):
    stage.refused = {36, 310}
    assert not await stage.send_back(0)
    assert "was not sent back" in caplog.text

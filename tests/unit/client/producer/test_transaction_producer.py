"""Ends of transactions whose broker is gone."""

import pytest

from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.headers.message import CheckTransactionStateRequestHeader, SendMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.consumer_parts import message
from tests.support.scripted_server import ScriptedServer, header_of, name_server, route_of


def check(_message: MessageExt) -> LocalTransactionState:
    return LocalTransactionState.UNKNOWN


class Broker:
    """Connection of a broker that asks for outcomes."""

    remote_address = "127.0.0.1:10911"

    def __init__(self) -> None:
        self.topics: list[str] = []

    def send_oneway(self, command: Command) -> None:
        self.topics.append(command.header.topic)


async def test_a_check_sees_the_topic_without_the_namespace():
    seen: list[str] = []

    def note(asked: MessageExt) -> LocalTransactionState:
        seen.append(asked.topic)
        return LocalTransactionState.COMMIT_MESSAGE

    producer = TransactionProducer("PG", ClientConfig("127.0.0.1:1", namespace="NS"), check=note)
    broker = Broker()
    header = CheckTransactionStateRequestHeader(0, 0)
    await producer._answer_check(message(0, topic="NS%T"), header, broker)  # type: ignore[arg-type]
    assert (seen, broker.topics) == (["T"], ["NS%T"])


@pytest.mark.parametrize("error", [None, KeyError("no such order")])
async def test_the_outcome_outlives_the_broker(error: Exception | None, caplog: pytest.LogCaptureFixture):
    stored = header_of(SendMessageResponseHeader("0" * 32, 0, 0))
    broker = ScriptedServer({RequestCode.SEND_MESSAGE_V2: lambda _fields, _body: response(header=stored)})
    routes = {"T": route_of({})}
    async with broker, name_server(routes) as names:
        routes["T"] = route_of({"broker-a": broker.address})
        async with (
            ClientInstance(names.address) as client,
            TransactionProducer("PG", client=client, check=check) as producer,
        ):

            async def execute(_message: Message) -> LocalTransactionState:
                routes["T"] = route_of({"broker-a": "127.0.0.1:1"})
                await client.routes.refresh_topic("T")
                if error is not None:
                    raise error
                return LocalTransactionState.COMMIT_MESSAGE

            if error is None:
                result = await producer.send_in_transaction(Message("T", b"x"), execute)
                assert result.local_transaction_state is LocalTransactionState.COMMIT_MESSAGE
            else:
                with pytest.raises(KeyError, match="no such order"):
                    await producer.send_in_transaction(Message("T", b"x"), execute)
    assert "did not reach the broker, which will check it: connect to 127.0.0.1:1 failed" in caplog.text

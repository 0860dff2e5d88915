"""Open transactions: the outcome that a broker asks for, and how many are kept."""

from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.proxy import transactions
from rocketbroker.proxy.messaging_pb2 import (
    Code,
    EndTransactionRequest,
    MessageType,
    SendMessageRequest,
    TransactionResolution,
    TransactionSource,
)
from rocketbroker.proxy.transactions import HalfMessage, OpenTransactions
from rocketbroker.testing.clocks import ControlledClock
from tests.support.local_broker import served_broker
from tests.support.proxy_calls import CONTEXT, Stream, message, producer
from tests.support.stores import read_queue
from tests.support.waiting import turns, until


async def test_a_producer_is_asked_for_the_outcome_of_its_transaction(tmp_path: Path):
    clock, stream = ControlledClock(), Stream()
    async with served_broker(tmp_path, clock) as (broker, service):
        broker.add_topic("Paid", "TRANSACTION", queues=1)
        await service.telemetry(producer("Paid"), CONTEXT, stream)
        sent = message(b"half", "Paid", message_type=MessageType.TRANSACTION)
        await service.send_message(SendMessageRequest(messages=[sent]), CONTEXT)
        await turns(1)
        clock.advance(10)
        await broker.controller._transaction_checks.check()
        [question] = [each.recover_orphaned_transaction_command for each in stream.sent[1:]]
        end = EndTransactionRequest(
            topic=question.message.topic,
            message_id=question.message.system_properties.message_id,
            transaction_id=question.transaction_id,
            resolution=TransactionResolution.COMMIT,
            source=TransactionSource.SOURCE_SERVER_CHECK,
        )
        reply = await service.end_transaction(end, CONTEXT)
        await until(lambda: read_queue(broker.controller.store, "Paid", 0))
        [committed] = read_queue(broker.controller.store, "Paid", 0)

    assert question.message.body == b"half"
    assert question.transaction_id == sent.system_properties.message_id
    assert reply.status.code == Code.OK
    assert (committed.body, committed.uniq_key) == (b"half", sent.system_properties.message_id)


def test_the_oldest_is_forgotten_beyond_a_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "_MOST_OPEN", 2)
    found = OpenTransactions()
    for number, transaction_id in enumerate("abac"):
        found.add("T", transaction_id, HalfMessage("broker-a", number, number))

    # The copy of "a" is younger than "b".
    assert list(found._halves.items()) == [
        (("T", "a"), HalfMessage("broker-a", 2, 2)),
        (("T", "c"), HalfMessage("broker-a", 3, 3)),
    ]

from pathlib import Path

from rocketbroker.broker.transaction.transaction_query import messages_of_transaction
from tests.support.transactions import HALF_TOPIC, Transactions


async def test_half_messages_and_real_message_are_found_by_their_transaction(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store")
    half = transactions.send()
    transactions.send(group="Other", UNIQ_KEY=half.uniq_key or "")
    await transactions.check()
    transactions.end(half)
    (_, _, copy, _) = transactions.halves()
    found = await messages_of_transaction(transactions.store.queries, half, HALF_TOPIC)
    assert [each.queue_offset for each in found] == [copy.queue_offset, half.queue_offset]
    (real,) = await messages_of_transaction(transactions.store.queries, half, "T")
    assert (real.topic, real.body) == ("T", half.body)
    await transactions.close()


async def test_nothing_is_found_without_the_index(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store", message_index_enable=False)
    half = transactions.send()
    assert await messages_of_transaction(transactions.store.queries, half, HALF_TOPIC) == []
    await transactions.close()

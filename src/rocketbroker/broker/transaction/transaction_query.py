"""Outcome of a transaction by the index, where all of its messages have one unique id."""

from typing import Final

from rocketbroker.broker.transaction.transactional_message_util import transaction_key
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.store.read.message_queries import MessageQueries

# Messages of one unique id that are looked through for those of the transaction.
_MOST_OF_ONE_ID: Final = 64
# The index knows seconds; and clocks are set back by a little.
_SLACK_MS: Final = 60_000
_FOREVER_MS: Final = 2**62


async def messages_of_transaction(queries: MessageQueries, half: MessageExt, topic: str) -> list[MessageExt]:
    """Return the messages of a topic that are of the transaction of a half message, and not much older; newest first.

    None where there is no index (``messageIndexEnable=false``), or the half message does not say which one it is.
    """
    key = transaction_key(half)
    if key is None or half.uniq_key is None:
        return []
    begin = half.store_timestamp - _SLACK_MS
    found = await queries.query_message(topic, half.uniq_key, _MOST_OF_ONE_ID, begin, _FOREVER_MS)
    return [each for each in map(decode_record, found.records) if transaction_key(each) == key]

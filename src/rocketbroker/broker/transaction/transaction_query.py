"""Outcome of a transaction, found in the index by the unique id that all of its messages share."""

from typing import Final

from rocketbroker.broker.transaction.transactional_message_util import transaction_key
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.store.read.message_queries import MessageQueries

# Messages of one unique id to search for those of the transaction.
_MOST_OF_ONE_ID: Final = 64
# The index has whole seconds, and clocks are set back by a little.
_SLACK_MS: Final = 60_000
_FOREVER_MS: Final = 2**62


async def messages_of_transaction(queries: MessageQueries, half: MessageExt, topic: str) -> list[MessageExt]:
    """Return a topic's messages of the transaction of a half message, newest first; none much older than it.

    The list is empty without an index (``messageIndexEnable=false``), or if the half message has no unique id.
    """
    key = transaction_key(half)
    if key is None or half.uniq_key is None:
        return []
    begin = half.store_timestamp - _SLACK_MS
    found = await queries.query_message(topic, half.uniq_key, _MOST_OF_ONE_ID, begin, _FOREVER_MS)
    return [each for each in map(decode_record, found.records) if transaction_key(each) == key]

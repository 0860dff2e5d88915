"""Options of Spark's Kafka source that our formats lack, with what to use instead."""

from typing import Final

_INSTEAD: Final = {
    "assign": "name the topics by subscribe, and queues by startingOffsets and endingOffsets",
    "endingoffsetsbytimestamp": "give endingTimestamp, as JSON by topic if topics differ",
    "groupidprefix": "a query needs no consumer group, since its checkpoint has the offsets",
    "includeheaders": "the column properties has them; includeProperties keeps some",
    "kafka.group.id": "a query needs no consumer group, since its checkpoint has the offsets",
    "maxrecordsperpartition": "give minPartitions",
    "startingoffsetsbytimestamp": "give startingTimestamp, as JSON by topic if topics differ",
    "startingoffsetsbytimestampstrategy": "a time after the last message is the end of the queue",
}
_OF_A_CLIENT: Final = ("kafka.", "kafkaconsumer.", "fetchoffset.")


def instead_of(name: str) -> str:
    """Return what to use instead of an option of Spark's Kafka source, in any case; empty for another option."""
    name = name.lower()
    if name in _INSTEAD:
        return _INSTEAD[name]
    return "it configures a Kafka client" if name.startswith(_OF_A_CLIENT) else ""

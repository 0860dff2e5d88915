"""Messages in flight, for a store that another broker takes over: it returns those that are not acknowledged."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from rocketbroker.codec.message.pop_info import decode_extra_info, real_topic
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from tests.support.pop_script import GROUP, PopScript, fields_of, handle_in, handle_of, messages_of

TOPIC, ORDERED = "PopMoves", "PopMovesOrder"
# The group's offsets afterwards.
ENDS = {TOPIC: 10, ORDERED: 1}
MODE = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 2}
RETURN_LIMIT_S = 120


def pop_some(broker: str, invisible_ms: int) -> None:
    """Set the mode of the group; pop ten of twelve messages, acknowledge four, and change the time of one.

    Of three messages, pop two in order.
    """
    script = PopScript(broker)
    script.make(TOPIC, 12)
    script.make(ORDERED, 3)
    assert script.ask("", 401, body=json.dumps(MODE).encode()).answer().code == 0
    popped = script.pop("", TOPIC, maxMsgNums=10, invisibleTime=invisible_ms).answer()
    for offset in (0, 3):
        assert script.acknowledge("", TOPIC, offset, handle_of(popped, offset)).answer().code == 0
    assert script.acknowledge_bits("", TOPIC, popped, 0b1010_0000).answer().code == 0
    assert script.change("", TOPIC, 8, handle_of(popped, 8), 2 * invisible_ms).answer().code == 0
    ordered = script.pop("", ORDERED, attemptId="one", **_in_order(invisible_ms)).answer()
    assert script.acknowledge("", ORDERED, 0, handle_of(ordered, 0, True)).answer().code == 0
    script.close()


def check_rest(broker: str, invisible_ms: int, *, has_batch: bool) -> None:
    """Check that the broker has the mode, returns what is in flight, and goes on where the group was.

    Args:
        broker: address of the broker that has taken over.
        invisible_ms: as for ``pop_some``.
        has_batch: true if it knows the ordered batch, of which a kill may lose all but the acknowledgement.
    """
    script = PopScript(broker)
    modes = json.loads(bytes(script.ask("", 402).answer().body))
    assert modes["messageRequestModeMap"][TOPIC][GROUP].items() >= MODE.items()
    times = _returned(script, TOPIC, 8, RETURN_LIMIT_S)
    assert times == {1: 1, 2: 1, 4: 1, 6: 1, 8: 1, 9: 1, 10: 0, 11: 0}
    # Message 8 was due last. Only the time tells that nothing more returns.
    assert list(times)[-1] == 8
    assert _returned(script, TOPIC, 1, 3) == {}
    again = script.pop("", ORDERED, attemptId="two", pollTime=20_000, **_in_order(invisible_ms)).answer()
    assert fields_of(again)["msgOffsetInfo"] == "0 0 1,2"
    assert not has_batch or fields_of(again)["orderCountInfo"] == "0 qo0%1 1;0 0 0"
    script.close()


def _in_order(invisible_ms: int) -> dict[str, str | int]:
    return {"order": "true", "maxMsgNums": 2, "invisibleTime": invisible_ms}


def _returned(script: PopScript, topic: str, number: int, limit_s: float) -> dict[int, int]:
    """Pop until so many messages have come or the time is over; return deliveries before by number, and acknowledge."""
    times: dict[int, int] = {}
    deadline = time.monotonic() + limit_s
    while len(times) < number and time.monotonic() < deadline:
        answer = script.pop("", topic, pollTime=500).answer()
        if answer.code:
            continue
        for message in messages_of(answer):
            assert message.flag not in times, "once"
            times[message.flag] = message.reconsume_times
            handle = handle_in(answer, message)
            name = real_topic(topic, GROUP, decode_extra_info(handle).retry)
            assert script.acknowledge("", name, message.queue_offset, handle).answer().code == 0
    return times


def committed(store: Path, topics: Iterable[str] = ENDS) -> dict[str, int]:
    """Return the group's offsets that are on disk, of queue 0 of topics."""
    path = store / "config" / "consumerOffset.json"
    table = ConsumerOffsetSerializeWrapper.decode(path.read_bytes()).offset_table if path.exists() else {}
    return {topic: table.get(f"{topic}@{GROUP}", {}).get(0, -1) for topic in topics}

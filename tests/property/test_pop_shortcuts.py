"""Shortcuts of pops and acknowledgements: a broker without them answers the same to any requests."""

import asyncio
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketbroker.broker.pop.pop_queues import OpenCheckPoint
from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.codec.message.pop_info import decode_fields
from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketbroker.codec.remoting.headers.pop import PopMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor import ack_message
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult
from tests.support.fakes import FakeClock
from tests.support.pop_broker import QUEUE_NUMS, TOPIC, Handed, PopBroker, handed
from tests.support.running import running

INVISIBLE_MS = 2_000
QUEUE = st.integers(0, QUEUE_NUMS - 1)
OFFSET = st.integers(0, 6)
# So that a pop finds more than it takes.
SENT = [("send", 0, "a", 4), ("send", 1, "b", 4), ("send", 1, "a", 4), ("send", 0, "b", 1), ("send", 0, "a", 2)]
POP = st.tuples(st.just("pop"), st.sampled_from([-1, -1, 0, 1]), st.integers(1, 6), st.sampled_from(["*", "*", "a"]))
BOTH = [("pop", 0, 1, "*"), ("pop", 1, 1, "*")]
OPERATION = st.one_of(
    POP,
    POP,
    st.tuples(st.just("send"), QUEUE, st.sampled_from("ab"), st.integers(1, 4)),
    # Which of the pops so far, and bits from its first message on.
    st.tuples(st.just("acknowledge"), st.integers(0, 30), st.integers(0, 255)),
    st.tuples(st.just("acknowledge one"), st.integers(0, 30), st.integers(0, 5)),
    st.tuples(st.just("set"), QUEUE, OFFSET),
    # Also to where the group is.
    st.tuples(st.just("reset"), QUEUE, st.none() | OFFSET),
    st.tuples(st.just("return")),
)


class Scripted(PopBroker):
    """A broker, and what it answered to a script."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, FakeClock())
        self.popped: list[list[Handed]] = []
        self.told: list[Any] = []

    async def run_script(self, operations: list[tuple[Any, ...]]) -> None:
        """Take each step with the same random numbers, and note its answer and the state after it."""
        steps: dict[str, Callable[..., Any]] = {
            "send": self._send,
            "pop": self._pop,
            "acknowledge": self._acknowledge,
            "acknowledge one": self._acknowledge_one,
            "set": lambda queue_id, offset: self.offsets.replace("G", TOPIC, queue_id, offset),
            "reset": self._reset,
            "return": self._return,
        }
        for number, (name, *arguments) in enumerate(operations):
            random.seed(number)
            done = steps[name](*arguments)
            self.told.append((name, await done if asyncio.iscoroutine(done) else done))
            self.store.appender.dispatch()
            self.told.append([msgspec.structs.astuple(each)[1:] for each in self._open()])
            self.told.append([(each.where, each.next_offset, each.sets) for each in self.check_points.queues])
            self.told.append({key: dict(queues) for key, queues in self.offsets.table.items()})
            self.told.append(self.offsets.resets.offsets())
            self.clock.advance(0.007)

    def check_records(self) -> None:
        """Let no record be stored whose properties are others than it says."""
        appender = self.store.appender
        put_copy = appender.put_copy

        def checked(message: MessageExtBrokerInner) -> PutMessageResult:
            assert message.found in {None, find_properties(message.properties)}
            return put_copy(message)

        appender.put_copy = checked  # type: ignore[method-assign]

    def _open(self) -> list[OpenCheckPoint]:
        return [each for queue in self.check_points.queues for each in queue.open.values()]

    def _send(self, queue_id: int, tag: str, count: int) -> None:
        for number in range(count):
            self.send(b"%d" % number, queue_id, TAGS=tag)

    async def _pop(self, queue_id: int, most: int, expression: str) -> Any:
        header = PopMessageRequestHeader("G", TOPIC, queue_id, most, INVISIBLE_MS, 0, 0, 0, "TAG", expression)
        answer = await self.call(self.pops.pop_message, header)
        if answer.code == ResponseCode.SUCCESS:
            self.popped.append(handed(answer, header))
        return answer.code, answer.header, bytes(answer.body)

    async def _acknowledge(self, which: int, bits: int) -> Any:
        if not self.popped:
            return None
        info = self.popped[which % len(self.popped)][0].info
        times = info.pop_time, info.invisible_time, bits.to_bytes(1, "little")
        place = info.retry, info.ck_queue_offset, info.queue_id, info.revive_qid
        body = BatchAckMessageRequestBody("broker-a", [BatchAck("G", TOPIC, *place, *times)]).encode()
        return await self.call(self.acks.batch_ack_message, None, body)

    async def _acknowledge_one(self, which: int, index: int) -> Any:
        if not self.popped:
            return None
        found = self.popped[which % len(self.popped)]
        return await self.ack("G", found[index % len(found)])

    def _reset(self, queue_id: int, offset: int | None) -> None:
        at = max(self.offsets.query("G", TOPIC, queue_id), 0) if offset is None else offset
        self.offsets.assign_reset("G", TOPIC, queue_id, at)

    async def _return(self) -> None:
        self.clock.advance(INVISIBLE_MS / 1000)
        await self.run()


async def told(operations: list[tuple[Any, ...]], *, plain: bool) -> list[Any]:
    """Run the script at a new broker; ``plain`` leaves the shortcuts out."""
    with tempfile.TemporaryDirectory() as folder:
        async with running(Scripted(Path(folder))) as broker:
            broker.check_records()
            if plain:
                broker.check_points.queues.known_position = lambda *_: None  # type: ignore[method-assign]
            await broker.run_script(operations)
            return broker.told


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@example([*BOTH, ("reset", 0, None), ("reset", 1, None), ("pop", -1, 1, "*"), ("pop", -1, 6, "*")])
@example([*BOTH, ("set", 0, 4), ("set", 1, 4), ("pop", -1, 1, "*"), ("set", 0, 1), ("set", 1, 1), ("pop", -1, 1, "*")])
@given(st.lists(OPERATION, min_size=10, max_size=40))
def test_a_broker_without_the_shortcuts_answers_the_same(after: list[tuple[Any, ...]]):
    operations = [*SENT, *after]
    found = asyncio.run(told(operations, plain=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ack_message, "decode_extra_info", decode_fields)
        assert asyncio.run(told(operations, plain=True)) == found

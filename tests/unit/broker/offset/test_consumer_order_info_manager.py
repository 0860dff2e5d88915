"""Batches of ordered POP: what blocks a queue, what an acknowledgement commits, and the file."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketbroker.broker.offset.consumer_order_info_manager import (
    MAX_BATCH,
    AckRefusal,
    ConsumerOrderInfoManager,
    OrderCounts,
)
from rocketbroker.codec.storefile.config_tables import dumps_config, loads_config
from rocketbroker.common.errors import CodecError, ConfigError
from tests.support.fakes import FakeClock

ILLEGAL, STALE = AckRefusal.ILLEGAL, AckRefusal.STALE

# consumerOrderInfo.json of Apache's 5.5.0 (QueueLevelConsumerManager.encode(true)): group "group" popped 5, 6 and 8 of
# Topic twice, the second time by the attempt "att", acknowledged 5, and changed the visibility of 6; group "g" popped 7
# of its retry topic; a third group only looked at a queue.
APACHE = b"""{
	"orderInfoCount":3,
	"orderedConsumptionLevel":"QUEUE",
	"table":{
		"%RETRY%g_t@g":{
			3:{
				"cm":0,
				"i":3000,
				"l":2000,
				"o":[7],
				"popTime":2000
			}
		},
		"TopicB@GroupB":{},
		"Topic@group":{
			0:{
				"a":"att",
				"cm":1,
				"i":3000,
				"l":2000,
				"o":[5,1,3],
				"oc":{
					5:1,
					6:1,
					8:1
				},
				"ot":{
					6:9000
				},
				"popTime":2000
			}
		}
	}
}"""


class Orders(ConsumerOrderInfoManager):
    """A manager with a clock, whose topics have 8 queues, and which notes its writes."""

    def __init__(self, time_ms: int = 10_000, path: Path = Path("consumerOrderInfo.json")) -> None:
        self.clock = FakeClock(time_ms)
        self.topics: dict[str, int] = {"Topic": 8, "%RETRY%g_t": 8}
        self.groups = {"group", "g"}
        self.writes: list[object] = []
        super().__init__(path, self.clock, self.topics.get, self.groups.__contains__, self._note)

    def _note(self, manager: object) -> None:
        self.writes.append(manager)

    def pop(self, *offsets: int, queue_id: int = 0, attempt_id: str | None = None, invisible: int = 3000) -> int:
        """Pop a queue of Topic; return the pop time."""
        pop_time = self.next_pop_time("Topic", "group", queue_id)
        self.update(attempt_id, "Topic", "group", queue_id, pop_time, invisible, offsets)
        return pop_time

    def counts(self, *offsets: int, queue_id: int = 0, attempt_id: str | None = None) -> OrderCounts:
        """Pop a queue of Topic; return the earlier deliveries."""
        pop_time = self.next_pop_time("Topic", "group", queue_id)
        return self.update(attempt_id, "Topic", "group", queue_id, pop_time, 3000, offsets)

    def ack(self, offset: int, pop_time: int, queue_id: int = 0) -> int | AckRefusal:
        return self.commit_and_next("Topic", "group", queue_id, offset, pop_time)

    def change(self, offset: int, pop_time: int, next_visible_ms: int) -> None:
        self.update_next_visible_time("Topic", "group", 0, offset, pop_time, next_visible_ms)

    def blocks(self, attempt_id: str | None = None, queue_id: int = 0, invisible: int = 3000) -> bool:
        return self.check_block(attempt_id, "Topic", "group", queue_id, invisible)

    def readable_at(self) -> int | None:
        return self.next_visible_ms("Topic", "group", 0)


def test_a_queue_is_blocked_until_its_message_is_acknowledged() -> None:
    orders = Orders()
    assert not orders.blocks()
    pop_time = orders.pop(1)
    assert orders.ack(1, pop_time - 10) is STALE
    assert orders.blocks()
    assert orders.ack(1, pop_time) == 2
    assert not orders.blocks()
    assert orders.ack(1, pop_time) == 2, "a client that lost the answer acknowledges again"


def test_acknowledgements_commit_up_to_the_first_message_without_one() -> None:
    orders = Orders()
    pop_time = orders.pop(5, 6, 8)
    assert [orders.ack(offset, pop_time) for offset in (8, 5, 7, 6)] == [5, 6, ILLEGAL, 9]


def test_a_queue_without_a_batch_commits_nothing() -> None:
    """RocketMQ would commit 10, and skip whatever precedes 9."""
    assert Orders().ack(9, 10_000) is STALE


def test_deliveries_are_counted_by_message() -> None:
    orders = Orders()
    assert orders.counts(1, 2, 3) == OrderCounts({}, 0)
    assert orders.counts(1, 2, 3) == OrderCounts({1: 1, 2: 1, 3: 1}, 1)
    assert orders.counts(2, 3) == OrderCounts({2: 2, 3: 2}, 2)
    assert orders.counts(3, 4) == OrderCounts({3: 3}, 0)
    assert orders.counts(5, 6) == OrderCounts({}, 0)


def test_deliveries_are_counted_by_queue() -> None:
    orders = Orders()
    for queue_id in (0, 1):
        assert orders.counts(0, queue_id=queue_id) == OrderCounts({}, 0)
    for queue_id in (0, 1):
        assert orders.counts(0, queue_id=queue_id) == OrderCounts({0: 1}, 1)
    assert orders.counts(0, 1) == OrderCounts({0: 2}, 0)
    assert orders.counts(0, queue_id=1) == OrderCounts({0: 2}, 2)


def test_a_repeated_attempt_is_not_blocked_and_counts_as_the_same_delivery() -> None:
    orders = Orders()
    orders.counts(1, 2)
    assert orders.counts(1, 2, attempt_id="a") == OrderCounts({1: 1, 2: 1}, 1)
    assert orders.blocks()
    assert orders.blocks("b")
    assert not orders.blocks("a")
    assert orders.counts(1, 2, 3, attempt_id="a") == OrderCounts({1: 1, 2: 1}, 0)
    assert orders.counts(1, 2, 3, attempt_id="b") == OrderCounts({1: 2, 2: 2, 3: 1}, 1)
    orders.pop(1)
    assert orders.blocks(None), "pops without an attempt are not repetitions of each other"


def test_a_message_made_visible_later_blocks_until_then() -> None:
    orders = Orders()
    pop_time = orders.pop(1, 2, 3, invisible=1)
    orders.change(2, pop_time, 13_000)
    assert [orders.ack(offset, pop_time) for offset in (1, 3)] == [2, 2]
    orders.clock.advance(2.999)
    assert (orders.blocks(), orders.readable_at()) == (True, 13_000)
    orders.clock.advance(0.001)
    assert (orders.blocks(), orders.readable_at()) == (False, None)

    pop_time = orders.pop(2, 3, 4, invisible=1)
    orders.change(2, pop_time, 16_000)
    assert [orders.ack(offset, pop_time) for offset in (3, 4)] == [2, 2]
    assert orders.blocks()
    assert orders.ack(2, pop_time) == 5
    assert not orders.blocks()


def test_a_message_made_visible_earlier_unblocks_its_queue_then() -> None:
    orders = Orders()
    pop_time = orders.pop(1)
    assert orders.readable_at() == 13_000
    orders.change(1, pop_time, 10_500)
    assert orders.readable_at() == 10_500
    orders.change(1, pop_time, 20_000)
    assert orders.readable_at() == 20_000
    orders.ack(1, pop_time)
    assert orders.readable_at() is None


def test_a_queue_is_readable_when_the_last_of_its_messages_is_visible() -> None:
    orders = Orders()
    pop_time = orders.pop(1, 2, 3)
    orders.change(1, pop_time, 11_000)
    orders.change(2, pop_time, 15_000)
    assert orders.readable_at() == 15_000
    orders.ack(2, pop_time)
    assert orders.readable_at() == 13_000


def test_changes_of_other_pops_and_messages_are_ignored() -> None:
    orders = Orders()
    orders.change(1, 10_000, 90_000)
    pop_time = orders.pop(1)
    orders.change(1, pop_time - 1, 90_000)
    orders.change(2, pop_time, 90_000)
    assert orders.readable_at() == 13_000
    assert list(file_of(orders)["table"]["Topic@group"]["0"]) == ["cm", "i", "l", "o", "popTime"]


def test_each_pop_of_a_queue_is_later_than_the_last_though_the_clock_went_back() -> None:
    orders = Orders()
    first = orders.pop(1)
    orders.clock.advance(-5)
    assert orders.pop(1) == first + 1
    assert orders.next_pop_time("Topic", "group", 1) == 5_000
    assert orders.ack(1, first) is STALE
    assert orders.ack(1, first + 1) == 2


@pytest.mark.parametrize("offsets", [(), range(MAX_BATCH + 1)])
def test_a_pop_of_none_or_too_many_messages_is_a_fault(offsets: tuple[int, ...]) -> None:
    orders = Orders()
    with pytest.raises(ValueError, match=f"delivers 1 to 32 messages of a queue, not {len(offsets)}"):
        orders.pop(*offsets)
    assert orders.flush() is None
    assert orders.writes == []


def test_a_reset_forgets_the_batch_of_its_queue_alone() -> None:
    orders = Orders()
    pop_time = orders.pop(1)
    orders.pop(1, queue_id=1)
    orders.clear_block("Topic", "group", 0)
    orders.clear_block("Topic", "group", 7)
    orders.clear_block("Topic", "other", 0)
    assert (orders.blocks(), orders.blocks(queue_id=1)) == (False, True)
    assert orders.ack(1, pop_time) is STALE
    assert orders.counts(1) == OrderCounts({}, 0)


@pytest.mark.parametrize(
    ("remove", "kept"),
    [
        (lambda orders: orders.remove_topic("Topic"), {"%RETRY%g_t@g"}),
        (lambda orders: orders.remove_group("g"), {"Topic@group"}),
        (lambda orders: orders.remove_topic("group"), {"%RETRY%g_t@g", "Topic@group"}),
        (lambda orders: orders.topics.pop("Topic"), {"%RETRY%g_t@g"}),
        (lambda orders: orders.topics.update(Topic=2), {"%RETRY%g_t@g"}),
        (lambda orders: orders.topics.update(Topic=3), {"%RETRY%g_t@g", "Topic@group"}),
        (lambda orders: orders.groups.discard("group"), {"%RETRY%g_t@g"}),
    ],
)
def test_batches_of_what_is_gone_are_forgotten(remove: Callable[[Orders], object], kept: set[str]) -> None:
    orders = Orders()
    orders.pop(2, 3, 4, queue_id=2)
    orders.update(None, "%RETRY%g_t", "g", 0, 10_000, 3_000, [7])
    remove(orders)
    orders.flush()
    assert set(file_of(orders)["table"]) == kept


def test_batches_of_a_day_ago_are_forgotten_unless_they_block() -> None:
    orders = Orders()
    orders.pop(1)
    orders.change(1, orders.pop(1, queue_id=0), 10_000 + 30 * 3_600_000)
    orders.pop(1, queue_id=1)
    orders.clock.advance(24 * 3600 + 1)
    orders.pop(1, queue_id=2)
    orders.flush()
    assert set(file_of(orders)["table"]["Topic@group"]) == {"0", "2"}
    orders.clock.advance(6 * 3600)
    orders.pop(1, queue_id=2)
    orders.flush()
    assert set(file_of(orders)["table"]["Topic@group"]) == {"2"}


def test_each_change_is_written_once() -> None:
    orders = Orders()
    orders.flush()
    assert orders.writes == []
    pop_time = orders.pop(1, 2)
    changes: list[tuple[Callable[[], object], bool]] = [
        (lambda: None, True),
        (lambda: orders.update(None, "Topic", "group", 0, pop_time, 3_000, [1, 2]), False),
        (orders.blocks, False),
        (lambda: orders.ack(1, pop_time), True),
        (lambda: orders.ack(1, pop_time), False),
        (lambda: orders.ack(9, pop_time), False),
        (lambda: orders.change(2, pop_time, 20_000), True),
        (lambda: orders.change(2, pop_time, 20_000), False),
        (lambda: orders.clear_block("Topic", "group", 0), True),
        (lambda: orders.clear_block("Topic", "group", 0), False),
    ]
    for number, (change, is_written) in enumerate(changes):
        written = len(orders.writes)
        change()
        orders.flush()
        assert len(orders.writes) - written == is_written, number


def file_of(orders: Orders) -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    """Return the file as standard JSON: its integer keys quoted."""
    file: dict[str, dict[str, dict[str, dict[str, object]]]] = json.loads(json.dumps(loads_config(orders.encode())))
    return file


def test_the_file_is_that_of_apache_s_broker() -> None:
    orders = Orders(8_000)
    orders.decode(APACHE)
    assert orders.blocks()
    assert not orders.blocks("att")
    assert orders.readable_at() == 9_000
    expected = APACHE
    # Properties of its class that it does not read, and a queue without a batch.
    for line in (b'\t"orderInfoCount":3,\n', b'\t"orderedConsumptionLevel":"QUEUE",\n', b'\t\t"TopicB@GroupB":{},\n'):
        expected = expected.replace(line, b"")
    assert orders.encode() == expected
    assert orders.ack(6, 2_000) == 8
    assert orders.counts(8) == OrderCounts({8: 2}, 2)


def test_the_file_of_an_early_broker_lacks_invisible_time_and_counts() -> None:
    orders = Orders()
    orders.decode(b'{"table":{"Topic@group":{"0":{"popTime":9999,"o":[2,1,2],"l":1,"cm":0}}}}')
    assert orders.readable_at() is None
    assert orders.blocks(invisible=3_000)
    assert orders.readable_at() == 12_999
    orders.flush()
    assert len(orders.writes) == 1
    assert orders.counts(3, 4, 5) == OrderCounts({3: 1, 4: 1}, 0)


@pytest.mark.parametrize(
    ("offsets", "fault"),
    [
        (list(range(1, MAX_BATCH + 2)), r"queue 3: o: a batch of 33 messages; one pop delivers at most 32"),
        ([5, 2, 2], r"queue 3: o: \[5, 2, 2\]; expected the first offset, then ascending distances from it"),
        ([5, 0], r"queue 3: o: \[5, 0\]"),
        ([-1], r"queue 3: o: \[-1\]"),
        (["a"], r"Expected `int`"),
    ],
)
def test_a_batch_that_no_pop_delivered_is_rejected(offsets: list[object], fault: str, tmp_path: Path) -> None:
    data = dumps_config({"table": {"Topic@group": {3: {"popTime": 1, "i": 1, "o": offsets}}}})
    path = tmp_path / "consumerOrderInfo.json"
    path.write_bytes(data)
    orders = Orders(path=path)
    with pytest.raises(CodecError, match=fault):
        orders.decode(data)
    with pytest.raises(ConfigError, match=fault):
        orders.load()


def test_fields_beyond_the_batch_are_left_out() -> None:
    orders = Orders()
    batch = {"popTime": 9_999, "i": 1, "o": [2, 1], "cm": -1, "ot": {9: 99_999}, "oc": {9: 1}, "l": 9_999, "new": {}}
    orders.decode(dumps_config({"table": {"Topic@group": {0: batch, 1: {"popTime": 9_999, "o": []}}, "T@g": {}}}))
    assert file_of(orders) == {
        "table": {"Topic@group": {"0": {"popTime": 9_999, "i": 1, "o": [2, 1], "cm": 3, "l": 9_999}}}
    }
    assert not orders.blocks()


def test_the_table_is_loaded_from_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "consumerOrderInfo.json"
    assert not Orders(path=path).load()
    before = Orders(path=path)
    before.pop(1, 2)
    path.write_bytes(before.encode())
    after = Orders(path=path)
    assert after.load()
    assert after.encode() == before.encode()
    assert after.blocks()
    assert after.flush() is None
    assert caplog.records == []


class Step(NamedTuple):
    """One change: its kind, queue, number for offset or size, and milliseconds since the one before."""

    kind: str
    queue_id: int
    number: int
    elapsed_ms: int


Change = Callable[[Orders], object]

STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            ["pop", "pop", "pop", "attempt", "ack", "ack", "ack", "change", "clear", "remove_topic", "remove_group"]
        ),
        st.integers(0, 1),
        st.integers(0, 5),
        st.sampled_from([0, 1, 2_000, 2_000, -3_000]),
    ),
    max_size=40,
)


class Model:
    """Ordered POP of queues with endless messages, told by sets instead of bits and distances.

    It makes the changes that a broker would journal, applies them to a manager, and checks each answer.
    """

    def __init__(self) -> None:
        self.orders = Orders()
        self.committed = {0: 0, 1: 0}
        # Queue -> pop time, attempt, offset -> visible at.
        self.open: dict[int, tuple[int, str | None, dict[int, int]]] = {}
        self.delivered: dict[int, dict[int, int]] = {0: {}, 1: {}}
        self.journal: list[Change] = []
        self.files = [self.orders.encode()]

    def run(self, step: Step) -> None:
        self.orders.clock.advance(step.elapsed_ms / 1000)
        if step.kind in {"pop", "attempt"}:
            self._pop(step.queue_id, 1 + step.number, "a" if step.kind == "attempt" else None)
        elif step.kind == "ack":
            self._ack(step.queue_id, step.number)
        elif step.kind == "change":
            self._change(step.queue_id, step.number, self.orders.clock.time_ms() + step.number * 500)
        elif step.kind == "clear":
            self._record(lambda orders: orders.clear_block("Topic", "group", step.queue_id))
            self._forget(step.queue_id)
        else:
            name = {"remove_topic": "Topic", "remove_group": "group"}[step.kind]
            self._record(lambda orders: getattr(orders, step.kind)(name))
            self._forget(0)
            self._forget(1)

    def _record(self, change: Change) -> object:
        result = change(self.orders)
        self.journal.append(change)
        self.files.append(self.orders.encode())
        return result

    def _forget(self, queue_id: int) -> None:
        self.open.pop(queue_id, None)
        self.delivered[queue_id] = {}

    def _pop(self, queue_id: int, size: int, attempt_id: str | None) -> None:
        _, open_attempt, left = self.open.get(queue_id, (0, None, {}))
        is_repeated = attempt_id is not None and attempt_id == open_attempt
        blocked_until = max(left.values(), default=0)
        is_blocked = bool(left) and self.orders.clock.time_ms() < blocked_until
        assert self.orders.next_visible_ms("Topic", "group", queue_id) == (blocked_until if is_blocked else None)
        assert self.orders.blocks(attempt_id, queue_id) == (is_blocked and not is_repeated)
        if is_blocked and not is_repeated:
            return
        first = self.committed[queue_id]
        offsets = [first + 2 * index for index in range(size)]  # others were filtered out
        pop_time = self.orders.next_pop_time("Topic", "group", queue_id)
        counts = self._record(
            lambda orders: orders.update(attempt_id, "Topic", "group", queue_id, pop_time, 1_000, offsets)
        )
        before = self.delivered[queue_id]
        now = {offset: before[offset] + (not is_repeated) if offset in before else 0 for offset in offsets}
        assert counts == OrderCounts({o: count for o, count in now.items() if count}, min(now.values()))
        acked = before.keys() - left.keys()
        # Messages that a smaller pop leaves stay if one of them is acknowledged.
        rest = [offset for offset in before if offset > offsets[-1]]
        kept = rest[: MAX_BATCH - size] if acked & set(rest) else []
        self.delivered[queue_id] = now | {offset: before[offset] for offset in kept}
        visible = dict.fromkeys(offsets, pop_time + 1_000) | dict.fromkeys(kept, pop_time)
        self.open[queue_id] = pop_time, attempt_id, {o: at for o, at in visible.items() if o not in acked}
        assert self.orders.acknowledged("Topic", "group", queue_id) == acked & visible.keys()

    def _ack(self, queue_id: int, index: int) -> None:
        if queue_id not in self.open:
            return
        pop_time, _, left = self.open[queue_id]
        offsets = list(self.delivered[queue_id])
        offset = offsets[index % len(offsets)]
        result = self._record(lambda orders: orders.ack(offset, pop_time, queue_id))
        left.pop(offset, None)
        assert result == min(left, default=offsets[-1] + 1)
        self.committed[queue_id] = min(left, default=offsets[-1] + 1)

    def _change(self, queue_id: int, index: int, next_visible_ms: int) -> None:
        if queue_id not in self.open:
            return
        pop_time, _, left = self.open[queue_id]
        offsets = list(self.delivered[queue_id])
        offset = offsets[index % len(offsets)]
        self._record(
            lambda orders: orders.update_next_visible_time(
                "Topic", "group", queue_id, offset, pop_time, next_visible_ms
            )
        )
        if offset in left:
            left[offset] = next_visible_ms


@given(STEPS)
@example([Step("pop", 0, 2, 0), Step("ack", 0, 1, 0), Step("pop", 0, 2, 2_000), Step("ack", 0, 0, 1)])
def test_a_model_blocks_counts_and_commits_alike(steps: list[Step]) -> None:
    model = Model()
    for step in steps:
        model.run(step)
        again = Orders()
        again.decode(model.files[-1])
        assert again.encode() == model.files[-1]


@given(STEPS, st.integers(0, 60), st.integers(0, 60))
@example([Step("pop", 0, 2, 0), Step("pop", 0, 2, 2_000)], 2, 2)
@example([Step("pop", 0, 2, 0), Step("clear", 0, 0, 0), Step("pop", 0, 2, -3_000), Step("ack", 0, 0, 0)], 3, 3)
def test_changes_replayed_onto_a_state_that_has_some_of_them_give_the_same_state(
    steps: list[Step], in_file: int, replayed: int
) -> None:
    model = Model()
    for step in steps:
        model.run(step)
    in_file = min(in_file, len(model.journal))
    orders = Orders()
    orders.decode(model.files[in_file])
    for change in model.journal[max(in_file - replayed, 0) :]:
        change(orders)
    assert file_of(orders) == file_of(model.orders)

"""Allocation of queues, against recorded answers of the Java client."""

import pytest

from rocketbroker.client.errors import AllocationError, OptionError
from rocketbroker.client.rebalance.allocate_message_queue import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueConsistentHash,
    java_order,
)
from rocketbroker.codec.message.message_ext import MessageQueue
from tests.support.rebalance_cases import ANSWERS, NUMBER, STRATEGIES, cases

QUEUES = [MessageQueue("T", "b", index) for index in range(5)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_gives_the_recorded_answers_of_java(strategy: str):
    answers = ANSWERS.read_text(encoding="utf-8").splitlines()
    assert len(answers) == NUMBER
    chosen = [(case, answer) for case, answer in zip(cases(), answers, strict=True) if case.strategy == strategy]
    assert len(chosen) == NUMBER // len(STRATEGIES)
    assert [case for case, answer in chosen if case.answer() != answer] == []


def test_averagely_gives_the_first_members_one_more():
    members = ["a", "b", "c"]
    shares = [AllocateMessageQueueAveragely().allocate(member, QUEUES, members) for member in members]
    assert [[queue.queue_id for queue in share] for share in shares] == [[0, 1], [2, 3], [4]]


def test_a_negative_number_of_virtual_nodes_is_rejected():
    with pytest.raises(OptionError, match="virtual_nodes is -1; give a whole number from 0"):
        AllocateMessageQueueConsistentHash(-1)


class Nowhere:
    def broker_room(self, _queue: MessageQueue) -> str:
        return "north"

    def consumer_room(self, _client_id: str) -> str:
        return ""


def test_a_member_without_a_room_is_named():
    strategy = AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), Nowhere())
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    with pytest.raises(AllocationError, match="the machine room of a is empty"):
        strategy.allocate("a", QUEUES, ["a"])


def test_texts_sort_by_utf_16_units():
    assert sorted(["\uffee", "\U0001f600", "z"], key=java_order) == ["z", "\U0001f600", "\uffee"]

import pytest

from rocketbroker.codec.remoting.custom_header import from_ext_fields
from rocketbroker.codec.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

QUEUE = {"topic": "T", "queueId": "1"}


@pytest.mark.parametrize(("sent", "meant"), [({}, None), ({"setZeroIfNotFound": "false"}, False)])
def test_not_saying_whether_zero_will_do_differs_from_forbidding_it(sent: dict[str, str], meant: bool | None):
    header = from_ext_fields({"consumerGroup": "G"} | QUEUE | sent, QueryConsumerOffsetRequestHeader)

    assert header.set_zero_if_not_found is meant


def test_go_commits_minus_one():
    fields = {"consumerGroup": "G", "commitOffset": "-1"} | QUEUE

    assert from_ext_fields(fields, UpdateConsumerOffsetRequestHeader).commit_offset == -1


def test_the_maximum_is_of_committed_messages_unless_said_otherwise():
    assert from_ext_fields(QUEUE, GetMaxOffsetRequestHeader).committed is True
    assert from_ext_fields(QUEUE | {"committed": "false"}, GetMaxOffsetRequestHeader).committed is False


def test_old_clients_search_without_a_boundary():
    assert from_ext_fields(QUEUE | {"timestamp": "5"}, SearchOffsetRequestHeader).boundary_type is None


def test_a_reset_is_of_all_queues_unless_one_is_named():
    fields = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}

    assert from_ext_fields(fields, ResetOffsetRequestHeader) == ResetOffsetRequestHeader("G", "T", -1, True)
    assert from_ext_fields(fields, ResetOffsetRequestHeader).queue_id == -1

import pytest

from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus, add_range


def test_requests_and_results_do_not_change():
    for value in (GetMessageRequest("T", 0, 0, 1, 1), GetMessageResult(GetMessageStatus.FOUND, 1, 0, 2)):
        for name in value.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(value, name, 1)


def test_ranges_of_neighbours_are_joined():
    ranges: list[tuple[int, int]] = []
    for offset, size in ((0, 10), (10, 5), (20, 1), (21, 2)):
        add_range(ranges, offset, size)
    assert ranges == [(0, 15), (20, 3)]


def test_statuses_have_the_names_and_order_of_java():
    assert [status.name for status in GetMessageStatus] == [
        "FOUND",
        "NO_MATCHED_MESSAGE",
        "MESSAGE_WAS_REMOVING",
        "OFFSET_FOUND_NULL",
        "OFFSET_OVERFLOW_BADLY",
        "OFFSET_OVERFLOW_ONE",
        "OFFSET_TOO_SMALL",
        "NO_MATCHED_LOGIC_QUEUE",
        "NO_MESSAGE_IN_QUEUE",
        "OFFSET_RESET",
    ]
    assert [status.value for status in GetMessageStatus] == list(range(10))

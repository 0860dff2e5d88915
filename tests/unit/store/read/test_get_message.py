from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus


def test_results_share_no_ranges():
    first, second = (GetMessageResult(GetMessageStatus.FOUND, 1, 0, 2) for _ in range(2))

    first.ranges.append((0, 1))

    assert second.ranges == []


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

from rocketbroker.codec.remoting.bodies.data_version import DataVersion


def test_a_change_counts_and_takes_the_time():
    version = DataVersion(1_000, 7, 3)

    version.next_version(2_000)
    assert version == DataVersion(2_000, 8, 0)
    version.next_version(3_000, 5)
    assert version == DataVersion(3_000, 9, 5)


def test_numbers_are_taken_over_and_then_independent():
    mine, other = DataVersion(), DataVersion(1, 2, 3)

    mine.assign_new_one(other)
    copied = other.copy()
    other.next_version(9)

    assert mine == copied == DataVersion(1, 2, 3)
    assert other != mine


def test_its_json_is_that_of_the_answer_to_get_broker_config():
    assert DataVersion(1795255766137, 1).encode() == b'{"counter":1,"stateVersion":0,"timestamp":1795255766137}'

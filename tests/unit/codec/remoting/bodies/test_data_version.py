from rocketbroker.codec.remoting.bodies.data_version import DataVersion


def test_a_change_counts_and_takes_the_time():
    version = DataVersion(1_000, 7, 3)

    version.next_version(2_000)
    assert version == DataVersion(2_000, 8, 0)
    version.next_version(3_000, 5)
    assert version == DataVersion(3_000, 9, 5)


def test_a_copy_is_independent():
    version = DataVersion(1, 2, 3)

    copied = version.copy()
    version.next_version(9)

    assert copied == DataVersion(1, 2, 3)
    assert version != copied


def test_its_json_is_that_of_the_answer_to_get_broker_config():
    assert DataVersion(1795255766137, 1).encode() == b'{"counter":1,"stateVersion":0,"timestamp":1795255766137}'

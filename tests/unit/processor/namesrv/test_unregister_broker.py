"""UNREGISTER_BROKER (104)."""

from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_requests


def test_the_recorded_broker_leaves(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    leaving = next(frame for frame in recorded_requests(104) if frame.sender == "broker-master")
    answer = namesrv.replay(leaving)
    assert (answer.code, answer.remark) == (0, None)
    assert namesrv.manager.brokers.by_name == {}
    assert namesrv.manager.topic_queues.topics() == []


def test_a_stranger_is_no_error(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    stranger = next(frame for frame in recorded_requests(104) if frame.scenario.endswith("nobody"))
    assert namesrv.replay(stranger).code == 0
    assert list(namesrv.manager.brokers.by_name) == ["broker-a"]

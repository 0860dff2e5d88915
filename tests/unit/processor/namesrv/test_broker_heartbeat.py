"""BROKER_HEARTBEAT (904)."""

from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_requests


def test_the_recorded_heartbeat_keeps_a_broker(namesrv: NamesrvFixture) -> None:
    heartbeat = next(frame for frame in recorded_requests(904) if frame.sender == "broker-master")
    assert heartbeat.command.is_oneway
    namesrv.register_recorded_broker()
    for _ in range(3):
        namesrv.clock.advance(100)
        assert namesrv.replay(heartbeat).code == 0
        namesrv.manager.scan_not_active_broker()
    assert namesrv.manager.brokers.live
    namesrv.clock.advance(121)
    namesrv.manager.scan_not_active_broker()
    assert not namesrv.manager.brokers.live


def test_a_stranger_is_no_error_and_is_not_remembered(namesrv: NamesrvFixture) -> None:
    assert namesrv.replay(recorded_requests(904)[0]).code == 0
    assert not namesrv.manager.brokers.live

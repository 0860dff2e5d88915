"""GET_BROKER_HA_STATUS answers in the fields that were recorded from Apache's broker."""

from rocketbroker.codec.remoting.bodies.offset import HAConnectionRuntimeInfo, HARuntimeInfo
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.processor.admin.get_broker_ha_status import GetBrokerHaStatusProcessor
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import answers_to


def test_the_answer_is_the_recorded_one():
    exchange = next(each for each in answers_to(RequestCode.GET_BROKER_HA_STATUS) if each.response)
    assert exchange.response is not None
    recorded = exchange.response.command().body
    info = HARuntimeInfo.decode(recorded)
    [slave] = info.ha_connection_info
    assert (slave.diff, slave.in_sync) == (0, True)

    made = HARuntimeInfo(
        True,
        info.master_commit_log_max_offset,
        1,
        [HAConnectionRuntimeInfo(slave.addr, slave.slave_ack_offset, 0, True, 0, slave.transfer_from_where)],
    )
    answer = GetBrokerHaStatusProcessor(lambda: made).process(
        FakeConnection(), request(RequestCode.GET_BROKER_HA_STATUS)
    )

    assert bytes(answer.body) == bytes(recorded)

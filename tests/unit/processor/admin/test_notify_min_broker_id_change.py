from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.notify_min_broker_id_change import NotifyMinBrokerIdChangeProcessor
from tests.support.fakes import FakeConnection


def test_a_notice_makes_the_slave_ask():
    rounds: list[int] = []
    processor = NotifyMinBrokerIdChangeProcessor(lambda: rounds.append(1))

    answer = processor.process(FakeConnection(), request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE))

    assert (answer.code, rounds) == (ResponseCode.SUCCESS, [1])

import pytest

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.waiting_queries import WaitingQueries


def test_queries_beyond_the_limit_are_rejected_until_others_have_ended():
    queries = WaitingQueries(BrokerConfig(max_waiting_queries=1))
    with queries.one_more():
        with pytest.raises(BrokerResponseError) as error, queries.one_more():
            pass
        assert error.value.code == ResponseCode.SYSTEM_BUSY
        assert error.value.remark.startswith("maxWaitingQueries: 1 queries are running and the limit is 1; ask again")
    with pytest.raises(ValueError, match="failed"), queries.one_more():
        raise ValueError("failed")
    with queries.one_more():
        pass

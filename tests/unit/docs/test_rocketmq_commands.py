"""The page of RocketMQ's sub-commands names requests that there are, and every sub-command of ours."""

from docs._ext.rocketmq_commands import REQUESTS, render, state_of
from rocketbroker.app.mqadmin.cli import SUB_COMMANDS
from rocketbroker.codec.remoting.request_code import RequestCode


def test_each_request_is_one_of_rocketmq():
    assert {word for words in REQUESTS.values() for word in words.split()} <= set(RequestCode.__members__)


def test_each_of_our_sub_commands_is_on_the_page():
    page = render()

    assert [name for name in SUB_COMMANDS if f"`{name}`" not in page] == []


def test_a_command_works_with_apaches_tool_when_all_its_requests_are_served():
    served = {RequestCode.GET_COLD_DATA_FLOW_CTR_INFO.value}

    assert state_of("getColdDataFlowCtrInfo", served) == "Apache's"
    assert state_of("getBrokerEpoch", served) == "no: GET_BROKER_EPOCH_CACHE (1007)"
    assert state_of("dumpCompactionLog", served) == "no: the files it reads do not exist here"
    assert state_of("clusterList", served) == "[ours](../reference/mqadmin.md#clusterlist)"

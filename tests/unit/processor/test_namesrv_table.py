"""The requests that the name server answers."""

from pathlib import Path

from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_answer, recorded_frames

CODES = {
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.BROKER_HEARTBEAT,
}


def test_it_answers_what_rocketmq_s_name_server_answers(tmp_path: Path) -> None:
    namesrv = NamesrvFixture(tmp_path)
    try:
        assert set(namesrv.routes) == {int(code) for code in CODES}
    finally:
        namesrv.close()


def test_no_other_code_was_answered_in_the_recording() -> None:
    unknown = {
        frame.command.code
        for frame in recorded_frames()
        if frame.from_client and frame.command.code not in CODES and recorded_answer(frame).command.code != 3
    }
    assert unknown == set()

"""DELETE_TOPIC_IN_NAMESRV (216)."""

import pytest

from rocketbroker.codec.remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_requests


@pytest.mark.parametrize(
    ("cluster", "left"), [(None, False), ("", False), ("DefaultCluster", False), ("OtherCluster", True)]
)
def test_a_topic_is_deleted_everywhere_or_in_a_cluster(
    namesrv: NamesrvFixture, cluster: str | None, left: bool
) -> None:
    namesrv.register_recorded_broker()
    header = DeleteTopicFromNamesrvRequestHeader("TBW102", cluster)
    assert namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header).code == 0
    assert ("TBW102" in namesrv.manager.topic_queues.topics()) is left


def test_the_recorded_deletions_of_unknown_topics_are_no_error(namesrv: NamesrvFixture) -> None:
    for asked in recorded_requests(216):
        assert namesrv.replay(asked).code == 0

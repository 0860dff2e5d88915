"""Subscriptions of the consumers of one group in one process."""

from collections.abc import Iterator

import pytest

from rocketbroker.client.consumer import subscriptions
from rocketbroker.client.consumer.subscriptions import Subscriptions
from rocketbroker.client.errors import SubscriptionError
from rocketbroker.client.message_selector import MessageSelector
from rocketbroker.common.clock import SystemClock
from tests.support.fakes import FakeClock

TAGS = MessageSelector.by_tag("b || a")


def of(group: str = "CG", name_server: str = "a:1") -> Subscriptions:
    return Subscriptions((name_server,), group, SystemClock())


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(subscriptions, "_members", {})
    yield
    assert subscriptions._members == {}


def test_a_subscription_has_its_tags_and_codes():
    own = of()
    own.add("T", TAGS)
    data = own.by_topic["T"]
    assert (data.sub_string, data.tags_set, data.code_set) == ("b || a", ["a", "b"], [97, 98])
    own.remove("T")
    assert own.by_topic == {}


def test_another_filter_is_rejected_while_the_other_runs():
    first, second = of(), of()
    first.join()
    second.join()
    first.add("T", TAGS)
    second.add("T", TAGS)
    second.add("U", TAGS)
    with pytest.raises(SubscriptionError, match=r"by TAG 'b \|\| a', not by SQL92 'x > 1'"):
        second.add("T", MessageSelector.by_sql("x > 1"))
    first.leave()
    second.add("T", MessageSelector.by_sql("x > 1"))
    with pytest.raises(SubscriptionError):
        first.join()
    second.leave()


def test_other_groups_and_clusters_may_differ():
    all_of_them = [of(), of("Other"), of(name_server="b:1")]
    for number, each in enumerate(all_of_them):
        each.join()
        each.add("T", MessageSelector.by_tag(str(number)))
    for each in all_of_them:
        each.leave()


def test_a_missing_topic_is_warned_of_once(caplog: pytest.LogCaptureFixture):
    clock = FakeClock()
    first, second = (Subscriptions(("a:1",), "CG", clock) for _ in range(2))
    first.join()
    second.join()
    first.add("T", TAGS)
    first.add("Other", TAGS)
    # Consumers that subscribe alike do so one after the other.
    second.warn_of_missing_topics()
    second.add("Other", TAGS)
    assert caplog.records == []
    clock.advance(10)
    for _ in range(2):
        second.warn_of_missing_topics()
    first.warn_of_missing_topics()
    assert [record.args for record in caplog.records] == [("CG", "T")]
    first.leave()
    second.leave()

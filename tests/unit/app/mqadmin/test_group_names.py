"""Groups, told from the retry topics of POP."""

import pytest

from rocketbroker.app.mqadmin.group_names import GroupNames
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketbroker.common.errors import RemotingTimeoutError
from tests.support.fakes import FakeClock

# Group a and b pop topics T and T_U, and a_V is a group beside topic V.
TOPICS = ["T", "T_U", "V", *(f"%RETRY%{name}" for name in ("a", "a_T", "b_T_U", "a+T", "a_V", "a_W", "_T"))]


class Admin(AdminClient):
    """Administrator of one broker with groups."""

    def __init__(self, groups: set[str]) -> None:
        super().__init__("127.0.0.1:1")
        self.groups = groups
        self.asked = 0
        self.is_frozen = False

    async def fetch_broker_addresses(self, _cluster: str | None = None) -> list[str]:
        return ["up:1"]

    async def get_all_subscription_group(self, address: str) -> SubscriptionGroupWrapper:
        self.asked += 1
        if self.is_frozen:
            raise RemotingTimeoutError(f"no answer from {address}")
        return SubscriptionGroupWrapper({name: SubscriptionGroupConfig(name) for name in self.groups})


async def test_a_retry_topic_of_pop_is_no_group():
    admin = Admin({"a", "a_V"})
    names = GroupNames(admin)

    assert await names.of(TOPICS) == ["a", "a_V", "a_W", "_T"]
    assert await names.of(TOPICS) == ["a", "a_V", "a_W", "_T"]
    assert admin.asked == 1


async def test_a_group_that_is_made_later_is_found_at_the_next_look_up():
    admin, clock = Admin({"a", "a_V"}), FakeClock()
    names = GroupNames(admin, clock.monotonic)
    await names.of(TOPICS)
    admin.groups.add("a_T")
    clock.advance(9.9)

    assert await names.of(TOPICS) == ["a", "a_V", "a_W", "_T"]
    clock.advance(0.1)
    assert await names.of(TOPICS) == ["a", "a_T", "a_V", "a_W", "_T"]


@pytest.mark.parametrize("topics", [["T", "%RETRY%a"], []])
async def test_no_broker_is_asked_without_doubt(topics: list[str]):
    admin = Admin(set())
    await GroupNames(admin).of(topics)

    assert admin.asked == 0


async def test_all_are_groups_while_a_broker_does_not_tell():
    admin, clock = Admin({"a"}), FakeClock()
    admin.is_frozen = True
    names = GroupNames(admin, clock.monotonic)

    assert await names.of(TOPICS) == ["a", "a_T", "b_T_U", "a_V", "a_W", "_T"]
    admin.is_frozen = False
    clock.advance(10)
    assert await names.of(TOPICS) == ["a", "a_W", "_T"]

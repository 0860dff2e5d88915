"""Look-up of the group that an administration request names."""

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.name_check import check_known_group


def check_existing_group(groups: SubscriptionGroupManager, group: str) -> None:
    """Check that a group exists, without creating it.

    Raises:
        BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST, or INVALID_PARAMETER for a name that no group can have.
    """
    check_known_group(group)
    if not groups.contains(group):
        raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")

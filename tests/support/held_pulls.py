"""Number of pulls that a broker holds."""

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService


def held_count(service: PullRequestHoldService) -> int:
    """Return the number of held pulls."""
    return sum(queue.count for queue in service._held.values())

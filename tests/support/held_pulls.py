"""How many pulls a broker holds."""

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService


def held_count(service: PullRequestHoldService) -> int:
    """How many are held."""
    return sum(queue.count for queue in service._held.values())

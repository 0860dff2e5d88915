"""How many pulls a broker holds."""

from rocketbroker.broker.pull_request_hold_service import PullRequestHoldService


def held_count(service: PullRequestHoldService) -> int:
    """How many are held."""
    return sum(map(len, service._held.values()))

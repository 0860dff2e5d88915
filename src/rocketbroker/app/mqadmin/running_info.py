"""State that a consumer reports, as text and for JSON (ConsumerRunningInfo.formatString)."""

from typing import Any

import msgspec

from rocketbroker.app.mqadmin.command import java_text
from rocketbroker.codec.remoting.bodies.client import ConsumerRunningInfo


def running_info(group: str, client_id: str, info: ConsumerRunningInfo) -> dict[str, Any]:
    """Return the state of a client for JSON: queues and topics in lists."""
    return {
        "group": group,
        "clientId": client_id,
        "properties": info.properties,
        "subscriptions": [msgspec.to_builtins(each) for each in info.subscription_set or []],
        "queues": [
            {**msgspec.to_builtins(queue), **msgspec.to_builtins(state)}
            for queue, state in sorted(info.mq_table.items())
        ],
        "topics": [
            {"topic": topic, **msgspec.to_builtins(status)} for topic, status in sorted(info.status_table.items())
        ],
        "jstack": info.jstack,
    }


def running_info_lines(info: ConsumerRunningInfo) -> list[str]:
    """Return the state of a client as RocketMQ prints it."""
    lines = ["#Consumer Properties#"]
    lines += [f"{name:<40}: {value}" for name, value in info.properties.items()]
    lines += ["", "", "#Consumer Subscription#"]
    lines += [
        f"{number:03d} Topic: {each.topic:<40} ClassFilter: {java_text(each.class_filter_mode):<8} "
        f"SubExpression: {each.sub_string}"
        for number, each in enumerate(info.subscription_set or [], 1)
    ]
    queues = sorted(info.mq_table.items())
    lines += ["", "", "#Consumer Offset#", _row(64, "#Topic", "#Broker Name", "#QID", "#Consumer Offset")]
    lines += [_row(32, each.topic, each.broker_name, each.queue_id, state.commit_offset) for each, state in queues]
    lines += ["", "", "#Consumer MQ Detail#", _row(64, "#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")]
    lines += [_row(64, each.topic, each.broker_name, each.queue_id, java_text(state)) for each, state in queues]
    titles = ("#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS")
    lines += ["", "", "#Consumer RT&TPS#", _rates("#Topic", 64, (*titles, "#ConsumeFailedMsgsInHour"))]
    for topic, status in sorted(info.status_table.items()):
        values = (
            status.pull_rt,
            status.pull_tps,
            status.consume_rt,
            status.consume_ok_tps,
            status.consume_failed_tps,
        )
        lines.append(_rates(topic, 32, (*(f"{value:.2f}" for value in values), str(status.consume_failed_msgs))))
    if info.jstack is not None:
        lines += ["", "", "#Consumer jstack#", *info.jstack.splitlines()]
    return lines


def _row(width: int, topic: str, broker: str, queue_id: object, value: object) -> str:
    return f"{topic:<{width}}  {broker:<32}  {queue_id!s:<4}  {value!s:<20}".rstrip()


def _rates(topic: str, width: int, values: tuple[str, ...]) -> str:
    widths = (14, 14, 14, 14, 18, 25)
    return f"{topic:<{width}}  {' '.join(f'{value:>{each}}' for value, each in zip(values, widths, strict=True))}"

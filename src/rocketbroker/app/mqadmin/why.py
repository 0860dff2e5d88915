"""``mqadmin why``: the way of one message to one group, from send to acknowledgement. RocketMQ has no such command."""

from difflib import get_close_matches
from typing import Annotated

import typer

from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.app.mqadmin.message_facts import find
from rocketbroker.app.mqadmin.message_fate import Answer, Outcome, explain
from rocketbroker.app.mqadmin.remedies import mqadmin
from rocketbroker.app.terminal import prose
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import TopicRouteError


@sub_command("why", "Explain what became of a message in a consumer group.", reads=True)
async def why(
    admin: AdminClient,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the message.")],
    key: Annotated[str | None, typer.Option("-k", "--key", metavar="KEY", help="Newest message with this key.")] = None,
    msg_id: Annotated[
        str | None, typer.Option("-i", "--id", metavar="ID", help="Message with this id of producer or broker.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--offset",
            metavar="[BROKER:]QUEUE:OFFSET",
            help="Message at this offset; BROKER if several have it.",
        ),
    ] = None,
) -> Report:
    """Follow one message, or the next that the group has to consume, from send to acknowledgement."""
    if sum(each is not None for each in (key, msg_id, offset)) > 1:
        raise typer.BadParameter("give one of --key, --id and --offset, or none of them for the next message")
    if key is not None and len(key.split()) != 1:
        fault = f"{key!r} has blanks, at which brokers split keys; give one of its parts" if key.strip() else "is empty"
        raise typer.BadParameter(fault, param_hint="--key")
    try:
        facts = await find(admin, group, topic, key=key, msg_id=msg_id, offset=offset)
    except TopicRouteError:
        facts = None
    answer = await _no_topic(admin, topic) if facts is None else explain(facts)
    message = None if facts is None else facts.message
    data = {
        "group": group,
        "topic": topic,
        "outcome": answer.outcome,
        "sentences": answer.sentences,
        "advice": answer.advice,
        "msgId": None if message is None else message.uniq_key,
        "brokerName": facts.broker if facts else "",
        "queueId": facts.queue.queue_id if facts and facts.queue else -1,
        "queueOffset": facts.offset if facts else -1,
    }
    return Report(data, [*map(prose, answer.sentences), "", prose(f"What to do: {answer.advice}")])


async def _no_topic(admin: AdminClient, topic: str) -> Answer:
    text = f"Topic {topic} has no route: no registered broker has it."
    known = await admin.fetch_all_topic_list()
    # A topic in a namespace has the name NAMESPACE%TOPIC.
    near = [name for name in known if name.endswith(f"%{topic}")] or get_close_matches(topic, known, 1)
    hint = f" Did you mean {' or '.join(sorted(near))}?" if near else ""
    return Answer(Outcome.NO_TOPIC, [text + hint], f"find the cause: {mqadmin('doctor', '-t', topic)}")

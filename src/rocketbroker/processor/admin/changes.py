"""Changes that administrators make at a broker, as the audit log describes them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.pop import SetMessageRequestModeRequestBody
from rocketbroker.codec.remoting.bodies.topic_config import (
    CreateTopicListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.processor.support.audited import MOST_NAMES, AuditedCode
from rocketbroker.processor.support.audited_changes import plain, settings_state, user_changes
from rocketbroker.processor.support.request_checks import read_body

T = TypeVar("T")


def broker_changes(
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
    modes: MessageRequestModeManager,
    models: Sequence[ConfigModel],
    access: AccessStore | None,
) -> dict[int, AuditedCode]:
    """Return the changes of a broker by request code."""

    def topic(command: Command) -> object:
        return plain(topics.topics.get(command.header.topic))

    def topic_list(command: Command) -> object:
        configs = read_body(command.body, CreateTopicListRequestBody).topic_config_list
        return _states((config.topic_name for config in configs), topics.topics)

    def deleted_topic(command: Command) -> object:
        name = command.header.topic
        found = {group: offsets.offsets_of(group, name) for group in sorted(offsets.groups_of(name))[:MOST_NAMES]}
        return {"topic": topic(command), "offsets": found}

    def group(command: Command) -> object:
        return plain(groups.groups.get(read_body(command.body, SubscriptionGroupConfig).group_name))

    def group_list(command: Command) -> object:
        configs = read_body(command.body, SubscriptionGroupList).group_config_list
        return _states((config.group_name for config in configs), groups.groups)

    def deleted_group(command: Command) -> object:
        name = command.header.group_name
        found = {of: offsets.offsets_of(name, of) for of in sorted(offsets.topics_of(name))[:MOST_NAMES]}
        return {"group": plain(groups.groups.get(name)), "offsets": found}

    def group_offsets(command: Command) -> object:
        return offsets.offsets_of(command.header.group, command.header.topic)

    def cloned_offsets(command: Command) -> object:
        header = command.header
        names = [header.topic] if header.topic else sorted(offsets.topics_of(header.src_group))[:MOST_NAMES]
        return {name: offsets.offsets_of(header.dest_group, name) for name in names}

    def forbidden(command: Command) -> object:
        return {"forbidden": groups.forbidden(command.header.group, command.header.topic)}

    def mode(command: Command) -> object:
        body = read_body(command.body, SetMessageRequestModeRequestBody)
        return plain(modes.mode_of(body.topic or "", body.consumer_group or ""))

    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: AuditedCode(topic),
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: AuditedCode(topic_list),
        RequestCode.DELETE_TOPIC_IN_BROKER: AuditedCode(deleted_topic),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: AuditedCode(group),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: AuditedCode(group_list),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: AuditedCode(deleted_group),
        RequestCode.UPDATE_BROKER_CONFIG: AuditedCode(settings_state(models)),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: AuditedCode(group_offsets),
        RequestCode.CLONE_GROUP_OFFSET: AuditedCode(cloned_offsets),
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: AuditedCode(forbidden),
        RequestCode.SET_MESSAGE_REQUEST_MODE: AuditedCode(mode),
        RequestCode.CLEAN_UNUSED_TOPIC: AuditedCode(),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: AuditedCode(),
        RequestCode.DELETE_EXPIRED_COMMITLOG: AuditedCode(),
        RequestCode.RESUME_CHECK_HALF_MESSAGE: AuditedCode(),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: AuditedCode(),
        **user_changes(access),
    }


def _states(names: Iterable[str], table: Mapping[str, T]) -> object:
    """Return the entries of a table by name; only the first hundred, since a request may name thousands."""
    wanted = list(dict.fromkeys(names))
    found: dict[str, object] = {name: plain(table.get(name)) for name in wanted[:MOST_NAMES]}
    if len(wanted) > MOST_NAMES:
        found["..."] = f"{len(wanted) - MOST_NAMES} more"
    return found

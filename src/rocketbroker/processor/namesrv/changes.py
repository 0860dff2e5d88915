"""Changes that administrators make at a name server, as the audit log describes them."""

from collections.abc import Sequence

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.support.audited import MOST_NAMES, AuditedCode
from rocketbroker.processor.support.audited_changes import plain, settings_state, user_changes


def namesrv_changes(
    routes: RouteInfoManager, kv_configs: KVConfigManager, models: Sequence[ConfigModel], access: AccessStore | None
) -> dict[int, AuditedCode]:
    """Return the changes of a name server by request code. What brokers register is not among them."""

    def value(command: Command) -> object:
        return kv_configs.get(command.header.namespace, command.header.key)

    def queues(command: Command) -> object:
        found = routes.topic_queues.queues(command.header.topic)
        return plain(dict(sorted(found.items())[:MOST_NAMES]))

    def permissions(command: Command) -> object:
        found = sorted(routes.topic_queues.queues_of(command.header.broker_name).items())
        return {topic: queue.perm for topic, queue in found[:MOST_NAMES]}

    return {
        RequestCode.PUT_KV_CONFIG: AuditedCode(value),
        RequestCode.DELETE_KV_CONFIG: AuditedCode(value),
        RequestCode.UPDATE_NAMESRV_CONFIG: AuditedCode(settings_state(models)),
        RequestCode.DELETE_TOPIC_IN_NAMESRV: AuditedCode(queues),
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: AuditedCode(permissions),
        RequestCode.ADD_WRITE_PERM_OF_BROKER: AuditedCode(permissions),
        **user_changes(access),
    }

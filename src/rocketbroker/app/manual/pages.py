"""Generated pages by their path below ``docs/``."""

from collections.abc import Callable

import rocketbroker.app.mqadmin.docs as mqadmin
import rocketbroker.app.mqstore.docs as mqstore
import rocketbroker.common.config.docs as configuration
from rocketbroker.app import request_codes_doc
from rocketbroker.app.manual import rocketmq_codes, rocketmq_commands, rocketmq_settings, rooms_picture

PAGES: dict[str, Callable[[], str]] = {
    "coming-from-rocketmq/commands.md": rocketmq_commands.render,
    "coming-from-rocketmq/request-codes.md": rocketmq_codes.render,
    "coming-from-rocketmq/settings.md": rocketmq_settings.render,
    "internals/rooms.svg": rooms_picture.render,
    "reference/configuration.md": configuration.render,
    "reference/mqadmin.md": mqadmin.render,
    "reference/mqstore.md": mqstore.render,
    "reference/request-codes.md": request_codes_doc.render,
}

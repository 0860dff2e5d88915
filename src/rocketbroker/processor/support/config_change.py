"""Changes of settings by properties text, for UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from rocketbroker.auth.requester import Requester
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import NotChangeableError, apply_updates, guards, parse_updates
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.common.config.properties_file import save_changes
from rocketbroker.common.errors import BrokerResponseError, ConfigError

# Lines are parsed in Python, at 1 µs a byte; all settings together are shorter.
_MOST_BYTES = 32 * 1024


def apply_change(models: Sequence[ConfigModel], body: bytes, requester: Requester | None = None) -> dict[str, str]:
    """Change settings in place, all or none; return those that changed, with their new text.

    Args:
        models: the settings.
        body: properties text.
        requester: who asks, with access control; a Super user alone may change who is let in.

    Raises:
        BrokerResponseError: NO_PERMISSION for a setting that is fixed or for Super users, INVALID_PARAMETER for one
            that is unknown or has a wrong value.
    """
    if len(body) > _MOST_BYTES:
        text = f"the settings have {len(body):,} bytes, above the limit of {_MOST_BYTES:,}; send fewer at a time"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, text)
    try:
        updates = parse_updates(body)
        if requester is not None and not requester.is_super and (names := guards(models, updates)):
            text = (
                f"{', '.join(names)} decides who is let in, and User:{requester.username} is no Super user; let one "
                "change it, or change it in the settings file and restart"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, text)
        return apply_updates(models, updates)
    except NotChangeableError as error:
        raise BrokerResponseError(ResponseCode.NO_PERMISSION, str(error)) from error
    except ConfigError as error:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, str(error)) from error


async def store_change(executor: Executor, path: Path, changed: dict[str, str]) -> None:
    """Write changed settings to their file, on a thread.

    Raises:
        BrokerResponseError: SYSTEM_ERROR if it cannot be written; the text names the file and the cause.
    """
    try:
        await asyncio.get_running_loop().run_in_executor(executor, save_changes, path, changed)
    except (OSError, ConfigError) as error:
        text = f"the change applies until this process stops, but it cannot be stored in {path}: {error}"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text) from error

"""Import of the modules of the first messages before they come."""

import asyncio
import importlib
from typing import Final

_DELAY_S: Final = 0.2
_MESSAGES: Final = (
    "rocketbroker.store.index.index_file",
    "rocketbroker.codec.message.columns",
    "rocketbroker.codec.message.alike_messages",
    "rocketbroker.store.commitlog.append_batches",
)
_FILTERS: Final = (
    "rocketbroker.codec.filter.selector_parser",
    "rocketbroker.codec.filter.known_results",
    "rocketbroker.codec.message.property_slices",
)


async def import_modules(*, with_filters: bool) -> None:
    """Import the modules off the loop, shortly after the start."""
    await asyncio.sleep(_DELAY_S)
    loop = asyncio.get_running_loop()
    for module in (*_MESSAGES, *(_FILTERS if with_filters else ())):
        await loop.run_in_executor(None, importlib.import_module, module)

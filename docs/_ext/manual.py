"""Pages of the manual that are generated from the code: ``bin/manual [FOLDER]`` writes all of them, to ``docs/``.

Without a folder it also writes the index of mqadmin's sub-commands, which is part of the code.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from docs._ext import (
    board_picture,
    configuration,
    mqadmin,
    mqadmin_index,
    mqstore,
    proofs,
    request_codes,
    rocketmq_commands,
    rocketmq_settings,
    rooms_picture,
)

# By their path below ``docs/``.
PAGES: dict[str, Callable[[], str]] = {
    "coming-from-rocketmq/commands.md": rocketmq_commands.render,
    "coming-from-rocketmq/settings.md": rocketmq_settings.render,
    "internals/proofs.md": proofs.render,
    "internals/rooms.svg": rooms_picture.render,
    "operations/board.svg": board_picture.render,
    "reference/configuration.md": configuration.render,
    "reference/mqadmin.md": mqadmin.render,
    "reference/mqstore.md": mqstore.render,
    "reference/request-codes.md": request_codes.render,
}


def main(folder: Path) -> None:
    """Write the pages below a folder."""
    for name, render in PAGES.items():
        (folder / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        mqadmin_index.INDEX.write_text(mqadmin_index.render(), encoding="utf-8")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])

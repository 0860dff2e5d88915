"""Stores for measurements with a mixture of everything."""

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from tests.support.mixed_store import MixedStore
from tests.support.store_damage import damage, places, tear

#: Mixed messages in a GiB of log.
MIXED_A_GIB: Final = 3_420_000


def fill_mixed(root: Path, messages: int, seed: int = 1, segment: int = 1 << 28, *, index: bool = True) -> None:
    """Write a mixed store with log files of ``segment`` bytes."""
    queue_file = 60_000 if index else 6_000_000
    MixedStore(
        root,
        messages,
        seed,
        mapped_file_size_commit_log=segment,
        mapped_file_size_consume_queue=queue_file,
        message_index_enable=index,
    ).make()


def analytics_store(
    root: Annotated[Path, typer.Argument(help="The store's folder, which must not exist.", resolve_path=True)],
    gib: Annotated[int, typer.Option(min=1, help="About so many GiB of log, without an index.")] = 1,
    messages: Annotated[int, typer.Option(min=0, help="So many messages instead, with an index.")] = 0,
    seed: Annotated[int, typer.Option(help="Of all that is chance.")] = 1,
    segment_mib: Annotated[int, typer.Option(min=1, help="Size of a commit-log file, with --messages.")] = 64,
    damaged: Annotated[int, typer.Option(min=0, help="Damage so many places afterwards.")] = 0,
) -> None:
    """Generate a mixed store."""
    if root.exists():
        raise typer.BadParameter(f"{root} is there already")
    begun = time.monotonic()
    count = messages or gib * MIXED_A_GIB
    fill_mixed(root, count, seed, segment_mib << 20 if messages else 1 << 30, index=bool(messages))
    print(f"{count:,} messages in {time.monotonic() - begun:.1f} s")
    if damaged:
        log = root / "commitlog"
        records = list(places(log))
        for each in damage(log, records, seed, damaged):
            print(f"{each.file} {each.position} +{each.length} {each.kind}")
        print(f"torn at {tear(log, records).position}")

"""Page of mqstore."""

from collections.abc import Callable, Iterator
from inspect import getdoc

from rocketbroker.app.mqadmin.docs import Option, function_options
from rocketbroker.app.mqstore.sub_commands import COMMANDS, DUMP_COMMANDS, load, load_dump
from rocketbroker.codec.storefile.audit_rules import AuditRule

_INTRODUCTION = """\
# mqstore

`mqstore` works on the files of a store that no broker has open: it checks them, shows them, and has them repaired. It
reads what Apache RocketMQ wrote as well as what this broker wrote.

- `check` and `dump` never write and take no lock. They may read beside a running broker, but then what is written
  meanwhile may look wrong.
- File sizes are seen from the files. `-c` names the broker's own settings file; it is needed where the store's parts
  lie in several places (`storePathCommitLog` and its like), where `messageDelayLevel` was changed, and for an index
  file with sizes of its own whose last entry is damaged.
- `--json` prints JSON with stable keys; times in it are ms since 1970.
- The exit code is 0 when all was done and no error was found (warnings are none), 1 when errors were found, 2 when
  there is no store, it cannot be read or the usage is wrong, 3 when `repair` was not told `--yes`. Why is one line on
  stderr.
"""

_CHECK = """\
Reads the whole store once. It holds each record of the CommitLog against its place, its lengths and its checksum, each
message against its ConsumeQueue entry and its index keys, each entry against the record that it leads to, each consumer
offset against the end of its queue. [Rules](#rules) lists what may be found.

What is an error after a clean stop is a warning after an unclean one (the `abort` file is there) where the next start
mends it: damage at the end of the log, entries that lead behind it, and entries and keys that are missing for messages
stored after the checkpoint. Messages of topics that were deleted, what lies before the first file of the log, and keys
from before the first index file are no errors. A store without index files is taken to have `messageIndexEnable=false`.
Of a topic with `queue.type=BatchCQ` each record is held against its entry in `batchconsumequeue/`. LMQs are not
checked."""

_REPAIR = """\
Checks the store, and says what would be done. With `--yes` it takes the store's lock, renames `consumequeue` and
`batchconsumequeue`, `index` or `checkpoint` to `<name>.damaged` where the check found errors in them, and opens and
stops the store as a broker does: recovery cuts a torn end of the CommitLog off, makes anew what is missing, and sets
consumer offsets back that lie behind the end of their queue. Its report is printed, and the store is checked again.
Files of the CommitLog are never set aside: a record that is damaged stays, and consumers are not given it. A store that
a broker has open is not touched (exit code 2).

Queues are made anew from the whole CommitLog, and so are those of topics that Apache RocketMQ deleted
and whose messages it still holds."""

# What a reader wants to know beyond the options, and an example.
_NOTES = {
    "check": (_CHECK, "mqstore check ~/store --limit 5"),
    "repair": (_REPAIR, "mqstore repair ~/store --yes"),
    "dump log": (
        """\
A line a record; `damagedBytes` stands where bytes are no record. `bodyCRC` says whether the body has its checksum.""",
        "mqstore dump log ~/store -t TopicTest --limit 10 --json",
    ),
    "dump queue": (
        """\
`tagsCode` is the hash of the tags, in SCHEDULE_TOPIC_XXXX the time of delivery in ms. Of a topic with
`queue.type=BatchCQ` a row is a record: `queueOffset` is that of its first message, `messages` how many it holds.""",
        "mqstore dump queue ~/store -t TopicTest -q 0 --from 1000",
    ),
    "dump index": (
        """\
A key leads to a slot, whose chain is shown from its newest entry on; `isOfKey` is false for entries of other keys with
the same slot.""",
        "mqstore dump index ~/store -t TopicTest -k order-7",
    ),
    "dump checkpoint": (
        """\
Messages stored before these times were on disk, less three seconds.""",
        "mqstore dump checkpoint ~/store",
    ),
    "dump config": (
        """\
RocketMQ writes integer keys without quotes, which few programs read; here they are standard JSON.""",
        "mqstore dump config ~/store --file consumerOffset.json",
    ),
}


def render() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for name, command in all_commands():
        parts += _section(name, command)
    return "\n".join([*parts, *_rules()])


def all_commands() -> Iterator[tuple[str, Callable[..., None]]]:
    """Yield the sub-commands by name, in the order of the page."""
    yield from ((name, load(name)) for name in COMMANDS)
    yield from ((f"dump {name}", load_dump(name)) for name in DUMP_COMMANDS)


def _section(name: str, command: Callable[..., None]) -> Iterator[str]:
    note, example = _NOTES[name]
    yield f"## {name}\n\n{getdoc(command)}\n\n{note}\n"
    yield f"```console\n$ {example}\n```\n"
    yield "| option | value | default | meaning |\n|---|---|---|---|"
    for option in function_options(command):
        yield f"| {_names(option)} | {option.value} | {option.default} | {option.help} |"
    yield ""


def _names(option: Option) -> str:
    names = [each for each in option.names if str(each).startswith("-")]
    return ", ".join(f"`{each}`" for each in names) or option.value


def _rules() -> Iterator[str]:
    yield "## Rules\n\nThe names and the meaning of what a check may find; other checks of stores use the same.\n"
    yield "| rule | severity | meaning |\n|---|---|---|"
    for rule in AuditRule:
        yield f"| `{rule.value}` | {rule.severity.value} | {rule.meaning} |"
    yield ""

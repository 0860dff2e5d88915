"""Page of the tests by promise and feature, from the marker ``proves`` of each test."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_TESTS = Path(__file__).parents[2] / "tests"
# Sections of docs/internals/crash-safety.md, then features of RocketMQ, in the order of the page.
PROMISES = (
    "What is promised",
    "What is assumed of the disk",
    "The steps of a message",
    "When a sync fails",
    "When the store is opened",
    "A log that copies another's",
    "Tables",
    "Damage",
)
FEATURES = (
    "Retries and dead letters",
    "Delayed messages",
    "Order",
    "Filters",
    "Transactions",
    "Consumers",
    "POP, by Apache's tests",
    "POP and the gRPC port",
    "TLS, by Apache's tests",
    "Request and reply, batches, types of messages",
    "Queries",
)

_INTRODUCTION = """\
# Proofs

For contributors: find the tests of each promise about crashes and of each feature of RocketMQ. Tests below
`tests/interop/` drive our servers as processes by the official Java client, 5.5.0 and, where it differs, 4.9.8. The
others look at cases that no client makes, with a clock of their own where hours matter.

The page is generated: `@pytest.mark.proves(section, promise)` above a test puts it here. A row that says *not served*
is rejected with a reason ([Refusals](../operations/refusals.md)).

*POP, by Apache's tests* names the integration tests of Apache RocketMQ about POP, and those here that port them. One
expectation is contradicted by design: PopOrderlyIT and ChangeInvisibleTimeMidMsgOrderlyIT acknowledge the first and the
third of three ordered messages, and expect the third again after the second. Here it does not come again: an
acknowledgement is a promise, in order as well ([POP](../reference/pop.md)). BatchChangeInvisibleTimeIT is of a version
after 5.5.0.

*TLS, by Apache's tests* names those of Apache RocketMQ about TLS. The integration tests start Apache's servers in their
own process, so their scenarios run here step by step, with the official client. One case of TlsTest ends otherwise by
design: a server that asks for certificates of clients also verifies them
([Security](../operations/security.md#encrypt-connections)).
"""


class Proof(NamedTuple):
    """A test, ``path::name``, and the promise that it proves."""

    section: str
    promise: str
    test: str


def proofs() -> list[Proof]:
    """Return all proofs, in the order of their tests.

    Raises:
        ValueError: A marker names no section of the page, or is not made of two texts.
    """
    found = [proof for path in sorted(_TESTS.rglob("test_*.py")) for proof in _of_file(path)]
    unknown = [proof for proof in found if proof.section not in PROMISES + FEATURES]
    if unknown:
        raise ValueError(
            f"no section of the page: {unknown[0].section!r} of {unknown[0].test}; use one of its sections"
        )
    return found


def _of_file(path: Path) -> Iterator[Proof]:
    text = path.read_text(encoding="utf-8")
    if "mark.proves(" not in text:
        return
    name = f"tests/{path.relative_to(_TESTS)}"
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from _marked(node.value, name)
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _of_function(each, f"{name}::{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_function(node, name)


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, place: str) -> Iterator[Proof]:
    for decorator in node.decorator_list:
        yield from _marked(decorator, f"{place}::{node.name}")


def _marked(value: ast.expr, test: str) -> Iterator[Proof]:
    for call in ast.walk(value):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.proves":
            section, promise = (ast.literal_eval(each) for each in call.args)
            yield Proof(section, promise, test)


def render() -> str:
    """Return the whole page."""
    tests: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for proof in proofs():
        tests[proof.section, proof.promise].append(f"`{proof.test}`")
    lines = [_INTRODUCTION]
    for section in PROMISES + FEATURES:
        lines += [f"## {section}\n", "| promise | tests |", "|---|---|"]
        rows = sorted((promise, found) for (of, promise), found in tests.items() if of == section)
        lines += [f"| {promise} | {', '.join(found)} |" for promise, found in rows]
        lines.append("")
    return "\n".join(lines)

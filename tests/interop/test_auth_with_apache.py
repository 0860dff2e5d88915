"""Decisions, rights, signatures and migrated files, compared with Apache's own classes in one JVM."""

import base64
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.plain_acl import read_plain_acl
from rocketbroker.auth.policies import Acl, PolicyType
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.codec.remoting.request_signature import V4_9_3, SigningKey
from tests.support.access_cases import Access, accesses, acls
from tests.support.access_requests import HEADERS, body_of, texts_of
from tests.support.java_toolchain import OPENS, SOURCES, driver_classpath, find_tools, require_java

pytestmark = pytest.mark.java


class Apache:
    """The JVM."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin
        assert process.stdout
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def ask(self, lines: Sequence[str]) -> list[str]:
        """Return the answers to some lines, few enough for the buffers of both pipes."""
        answers: list[str] = []
        for start in range(0, len(lines), 100):
            part = lines[start : start + 100]
            self._in.write("".join(f"{line}\n" for line in part))
            self._in.flush()
            answers += [self._answer() for _ in part]
        return answers

    def _answer(self) -> str:
        while line := self._out.readline():
            mark, _, text = line.rstrip("\n").partition("\t")
            if mark == "ANSWER":
                return text
        raise AssertionError("the JVM has ended")


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    require_java()
    classpath = driver_classpath("Decide", "5.5.0", SOURCES / "auth")
    home = tmp_path_factory.mktemp("auth")
    command = [
        find_tools()["java"],
        *OPENS,
        "-Xmx256m",
        "-XX:+UseSerialGC",
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        "-cp",
        classpath,
        "Decide",
    ]
    with (
        Path(home, "errors").open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        ) as process,
    ):
        held = Apache(process)
        assert held.ask(["NEW"]) == ["OK"]
        yield held
        assert process.stdin
        process.stdin.close()
        assert process.wait(30) == 0, Path(home, "errors").read_text()


def entry_lines(acl: Acl) -> list[str]:
    return [
        "\t".join(
            [
                "ENTRY",
                kind.word,
                str(entry.resource),
                ",".join(action.word for action in entry.actions),
                ",".join(entry.sources),
                entry.decision.word,
            ]
        )
        for kind in PolicyType
        for entry in acl.entries(kind)
    ]


def ask_line(access: Access) -> str:
    actions = ",".join(action.word for action in access.right.actions)
    return f"ASK\t{access.right.resource}\t{actions}\t{access.address}"


@settings(max_examples=300, deadline=None)
@given(acl=acls(), asked=st.lists(accesses(), min_size=20, max_size=40))
def test_decisions_are_those_of_apaches_handler(apache: Apache, acl: Acl, asked: list[Access]):
    entries = entry_lines(acl)
    answers = apache.ask(["NEW", *entries, *map(ask_line, asked)])[1 + len(entries) :]
    rules = AccessRules(acls={"joe": acl})

    decided = ["ALLOW" if rules.decide("joe", one.right, one.address).allowed else "DENY" for one in asked]
    assert decided == answers


@pytest.mark.parametrize("code", sorted(HEADERS))
def test_rights_are_those_of_apaches_builder(apache: Apache, code: int):
    header = HEADERS[code]
    fields = texts_of(header) if header else st.just({"unused": "1"})
    ours = RequestRights("C", as_apache=True)

    @settings(max_examples=25, deadline=None)
    @given(fields=fields, body=body_of(code))
    def compare(fields: dict[str, str], body: bytes) -> None:
        # Without any field, Apache's broker checks nothing.
        fields = {**fields, "AccessKey": "joe"}
        words = [f"{name}={text}" for name, text in fields.items()]
        (answer,) = apache.ask(["\t".join(["RIGHTS", str(code), base64.b64encode(body).decode(), *words])])
        # Subscriptions are a set in Java, so that the same right may be asked for more often here.
        assert set(map(str, ours.of(code, fields, body))) == set(filter(None, answer.split("; ")))

    compare()


@settings(max_examples=100, deadline=None)
@given(
    fields=st.dictionaries(
        st.text("abcXYZ_", min_size=1, max_size=4) | st.just("_UNIQUE_KEY_QUERY") | st.just("Signature"),
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=8),
        max_size=6,
    ),
    version=st.sampled_from([V4_9_3 - 1, V4_9_3, V4_9_3 + 1, 513]),
    body=st.binary(max_size=50),
    secret=st.text("abc-123 ä'\"", min_size=1, max_size=80).filter(str.strip),
)
def test_signatures_are_those_of_apaches_signer(
    apache: Apache, fields: dict[str, str], version: int, body: bytes, secret: str
):
    fields = {**fields, "AccessKey": "joe"}
    words = [f"{name}={text}" for name, text in fields.items()]
    line = "\t".join(["SIGN", secret, str(version), base64.b64encode(body).decode(), *words])
    assert apache.ask([line]) == [SigningKey(secret).signature(fields, version, body)]


PERMISSIONS = st.sampled_from(["DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"])


def permissions(names: list[str]) -> st.SearchStrategy[list[str]]:
    return st.dictionaries(st.sampled_from(names), PERMISSIONS, max_size=4).map(
        lambda found: [f"{name}={word}" for name, word in found.items()]
    )


@settings(max_examples=100, deadline=None)
@given(
    secret=st.sampled_from(["12345678", "0123", "geheim-7", "it's", "2026-11-28", "true", "1e3"]),
    is_admin=st.sampled_from(["", "  admin: true\n", "  admin: false\n"]),
    topics=permissions(["a", "ab", "%DLQ%a", "inst%a"]),
    groups=permissions(["a", "g", "inst%g"]),
    defaults=st.tuples(*[st.none() | PERMISSIONS] * 2),
)
def test_a_file_of_access_control_1_becomes_what_apaches_migrator_makes(
    apache: Apache,
    tmp_path_factory: pytest.TempPathFactory,
    secret: str,
    is_admin: str,
    topics: list[str],
    groups: list[str],
    defaults: tuple[str | None, str | None],
):
    names = ("defaultTopicPerm", "defaultGroupPerm")
    text = f"accounts:\n- accessKey: 4711\n  secretKey: {secret}\n{is_admin}" + "".join(
        [
            *(f"  {name}: {word}\n" for name, word in zip(names, defaults, strict=True) if word),
            *(f"  topicPerms: {topics!r}\n" for _ in topics[:1]),
            *(f"  groupPerms: {groups!r}\n" for _ in groups[:1]),
        ]
    )
    path = tmp_path_factory.mktemp("conf") / "plain_acl.yml"
    path.write_text(text)
    users, acls, _ = read_plain_acl([path])

    found = [f"{user.type.word} {user.name} {user.secret}" for user in users]
    for acl in acls:
        for kind in PolicyType:
            for entry in acl.entries(kind):
                actions = ",".join(action.word for action in entry.actions)
                found.append(f"{kind.word} {entry.resource} {actions} {entry.decision.word}")
    assert apache.ask([f"MIGRATE\t{base64.b64encode(text.encode()).decode()}"]) == ["; ".join(found)]

"""Files of access control 1.0: read as Apache's migrator does, and refused with the path of a wrong field."""

from pathlib import Path

import pytest

from rocketbroker.auth import plain_acl
from rocketbroker.auth.errors import AuthValueError
from rocketbroker.auth.plain_acl import plain_acl_files, read_plain_acl
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, parse_resource
from rocketbroker.auth.users import User, UserType
from rocketbroker.common.errors import ConfigError

# The example of Apache RocketMQ 4, with its keys of digits alone.
EXAMPLE = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
"""


def entry(resource: str, *actions: Action, decision: Decision = Decision.ALLOW) -> PolicyEntry:
    return PolicyEntry(parse_resource(resource), actions, decision)


def write(folder: Path, text: str | bytes, name: str = "plain_acl.yml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def account(lines: str = "") -> str:
    return f"accounts:\n- accessKey: joe\n  secretKey: geheim-7\n{lines}"


def test_the_example_becomes_users_and_policies(tmp_path: Path):
    path = write(tmp_path, EXAMPLE)
    found = read_plain_acl([path])

    assert found.users == [User("RocketMQ", "12345678"), User("rocketmq2", "12345678", UserType.SUPER)]
    pub_sub = (Action.PUB, Action.SUB)
    assert found.acls == [
        Acl(
            "RocketMQ",
            (
                entry("Topic:topicA", Action.ALL, decision=Decision.DENY),
                entry("Topic:topicB", *pub_sub),
                entry("Topic:topicC", Action.SUB),
                entry("Group:groupA", Action.ALL, decision=Decision.DENY),
                entry("Group:groupB", *pub_sub),
                entry("Group:groupC", Action.SUB),
            ),
            (entry("Topic:*", Action.ALL, decision=Decision.DENY), entry("Group:*", Action.SUB)),
        )
    ]
    assert found.remarks == [
        f"{path}: globalWhiteRemoteAddresses are not migrated: a policy with source addresses allows a user from there",
        f"{path}: accounts[1].whiteRemoteAddress of rocketmq2 is not migrated: the user must sign from there",
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "accounts:\n", "accounts: []\n", "---\n", "~"])
def test_an_empty_file_has_no_users(tmp_path: Path, text: str):
    assert read_plain_acl([write(tmp_path, text)]) == ([], [], [])


def test_texts_are_taken_as_they_are_written(tmp_path: Path):
    text = 'accounts:\n- {accessKey: "0123", secretKey: 2026-11-28}\n- {accessKey: 0x10, secretKey: "it\'s\\u00e4"}\n'
    assert read_plain_acl([write(tmp_path, text)]).users == [User("0123", "2026-11-28"), User("0x10", "it'sä")]
    joined = "\ufeff" + account("  admin: Yes\n  topicPerms: [' a = PUB ']\n")
    found = read_plain_acl([write(tmp_path, joined)])
    assert found.users == [User("joe", "geheim-7", UserType.SUPER)]
    assert found.acls == [Acl("joe", (entry("Topic:a", Action.PUB),))]


def test_a_permission_of_a_retry_topic_is_one_of_the_group(tmp_path: Path):
    lines = "  topicPerms: ['%RETRY%G=SUB']\n  groupPerms: [G=SUB]\n"
    assert read_plain_acl([write(tmp_path, account(lines))]).acls == [Acl("joe", (entry("Group:G", Action.SUB),))]


def test_the_first_account_of_a_name_counts(tmp_path: Path):
    first = write(tmp_path, account(), "acl/a.yml")
    second = write(tmp_path, account().replace("geheim-7", "other"))
    found = read_plain_acl([first, second])
    assert found.users == [User("joe", "geheim-7")]
    assert found.remarks == [f"{second}: accounts[0]: joe was read before, and the first account counts"]


def test_files_of_the_folder_go_before_the_main_one(tmp_path: Path):
    names = ["acl/b.yaml", "acl/a.yml", "acl/deep/er/c.yml", "acl/readme.txt", "plain_acl.yml", "tools.yml"]
    for name in names:
        write(tmp_path, "", name)
    found = [str(path.relative_to(tmp_path)) for path in plain_acl_files(tmp_path)]
    assert found == ["acl/a.yml", "acl/b.yaml", "acl/deep/er/c.yml", "plain_acl.yml"]
    assert plain_acl_files(tmp_path, tmp_path / "tools.yml")[-1] == tmp_path / "tools.yml"
    assert plain_acl_files(tmp_path / "none") == []


def test_a_folder_in_a_circle_and_too_many_files_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, "", "acl/a.yml")
    (tmp_path / "acl" / "loop").symlink_to(tmp_path / "acl")
    assert len(plain_acl_files(tmp_path)) == 1
    monkeypatch.setattr(plain_acl, "MAX_FILES", 0)
    with pytest.raises(ConfigError, match="1 files exceed the limit of 0"):
        plain_acl_files(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "it is a list, and must have fields such as accounts"),
        ("text", "it is a text, and must have fields"),
        ("account: []", "the field 'account' is unknown; known are accounts, dataVersion"),
        ("accounts: x", "accounts: it is a text, and must be a list"),
        ("accounts: {a: b}", "accounts: it is a table, and must be a list"),
        ("accounts: [x]", r"accounts\[0\]: it is a text, and must have fields such as accessKey"),
        ("accounts: [{secretKey: geheim-7}]", r"accounts\[0\]: username: it is blank"),
        ("accounts: [{accessKey: joe}]", r"accounts\[0\]: password of user joe: it is blank"),
        ("accounts: [{accessKey: joe, secretKey: ~}]", "password of user joe: it is blank"),
        ("accounts: [{accessKey: j o, secretKey: geheim-7}]", "' ' is not allowed"),
        ('accounts: [{accessKey: joe, secretKey: "geheim\\n"}]', "password of user joe: character 7 is a control"),
        ("accounts: [{accessKey: [joe], secretKey: geheim-7}]", r"accounts\[0\].accessKey: it is a list, and must be"),
        (account("  secretkey: x\n"), r"accounts\[0\]: the field 'secretkey' is unknown"),
        (account("  admin: maybe\n"), r"accounts\[0\].admin: 'maybe' is not true or false"),
        (account("  topicPerms: T=PUB\n"), r"accounts\[0\].topicPerms: it is a text, and must be a list"),
        (account("  topicPerms: [T=PUB, U]\n"), r"topicPerms\[1\]: 'U' is not <name>=<permission>"),
        (account("  topicPerms: [T=PUB=SUB]\n"), "'T=PUB=SUB' is not <name>"),
        (account("  topicPerms: [[T=PUB]]\n"), "'' is not <name>"),
        (account("  topicPerms: [T=ALL]\n"), "permission 'ALL' is unknown; give one of DENY, PUB, SUB, PUB|SUB"),
        (account("  groupPerms: [G=sub]\n"), r"groupPerms\[0\]: permission 'sub' is unknown"),
        (account("  topicPerms: [T*=PUB]\n"), r"'T\*' has a \*"),
        (account("  topicPerms: ['a b=PUB']\n"), "cannot be the name of a topic"),
        (account("  topicPerms: [T=PUB, T=SUB]\n"), r"topicPerms\[1\]: Topic:T has another permission above"),
        (account("  defaultTopicPerm: ANY\n"), r"accounts\[0\].defaultTopicPerm: permission 'ANY' is unknown"),
        (account("  admin: true\n  admin: false\n"), "line 5: the field 'admin' is there twice"),
        ("a: &x 1\n", "line 1: anchors are not allowed"),
        ("a: *x\n", "line 1: aliases are not allowed"),
        ("accounts: !!python/object/apply:os.system [id]", "the tag '.*os.system' is not allowed"),
        ("accounts: !java.net.URL [x]", "the tag '!java.net.URL' is not allowed"),
        ("a: !!str 1", "line 1: the tag 'tag:yaml.org,2002:str' is not allowed"),
        ("{[a]: b}", "the name of a field must be a text"),
        ("a: 1\n---\nb: 2\n", "line 2: it has a second document"),
        ("[" * 20 + "]" * 20, "nested deeper than 8 levels"),
        ("accounts: [", "line .: it is not YAML: "),
        (account("  admin: 'geheim-8\n"), "it is not YAML: "),
        (b"\xff\xfe\x00", "byte 0 is not UTF-8"),
        ("a: \x00", "it is not YAML: it has characters that are not allowed"),
        ("#" * (1 << 20) + "#", "it exceeds the limit of 1,048,576 bytes"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place_and_no_secret(tmp_path: Path, text: str | bytes, reason: str):
    path = write(tmp_path, text)
    with pytest.raises(AuthValueError, match=reason) as refused:
        read_plain_acl([path])
    assert str(path) in str(refused.value)
    assert "geheim" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400 + len(str(path))


def test_a_billion_laughs_are_refused_at_the_first_anchor(tmp_path: Path):
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]
    with pytest.raises(AuthValueError, match="line 1: anchors are not allowed"):
        read_plain_acl([write(tmp_path, "\n".join(lines))])


def test_a_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"none\.yml cannot be read: No such file or directory"):
        read_plain_acl([tmp_path / "none.yml"])


def test_without_pyyaml_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"needs PyYAML: pip install 'rocketbroker\[migration\]'"):
        read_plain_acl([write(tmp_path, EXAMPLE)])

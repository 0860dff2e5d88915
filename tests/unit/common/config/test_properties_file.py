"""Java properties text: places of entries, rewriting, unreadable files."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.common import atomic_file
from rocketbroker.common.config.properties_file import (
    Entry,
    load_properties,
    parse_properties,
    properties_text,
    save_changes,
)
from rocketbroker.common.errors import ConfigError


def test_entries_carry_the_line_they_begin_on():
    text = "# c\r\na = 1\\\n  2\n\n! d\rb:3\n\u2028c 4"
    assert parse_properties(text.replace("\u2028", ""), "f") == [
        Entry("a", "12", "f:2"),
        Entry("b", "3", "f:6"),
        Entry("c", "4", "f:7"),
    ]


def test_a_broken_escape_names_its_line():
    with pytest.raises(ConfigError, match=r"^f:2: .*four hexadecimal digits; write"):
        parse_properties("a=1\nb=\\u12\n", "f")


def test_comments_may_be_in_any_encoding_but_values_are_utf8(tmp_path):
    file = tmp_path / "b.conf"
    file.write_bytes(b"# \xb4\xf3\na=\xe5\xad\x98\n")
    assert load_properties(file) == [Entry("a", "存", f"{file}:2")]
    file.write_bytes(b"x=1\na=\xb4\xf3\n")
    with pytest.raises(ConfigError, match=r"b\.conf:2: .*UTF-8"):
        load_properties(file)


@pytest.mark.parametrize("what", ["missing", "directory"])
def test_an_unreadable_file_is_one_line(tmp_path, what):
    path = tmp_path if what == "directory" else tmp_path / "none.conf"
    with pytest.raises(ConfigError) as caught:
        load_properties(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_values_read_back(value):
    from javaproperties import loads

    assert loads(properties_text({"name": value, "other": "x"})) == {"name": value, "other": "x"}


def test_text_is_sorted_and_leaves_colons_alone():
    assert properties_text({"b": "h:1;i:2", "a": "x = y"}) == "a=x = y\nb=h:1;i:2\n"


def test_saving_touches_the_changed_entries_only(tmp_path):
    file = tmp_path / "b.conf"
    file.write_bytes(b"# \xb4\xf3 kept\nbrokerName = a\\\n  b\n\nlistenPort:1\nlast=x")
    file.chmod(0o640)
    save_changes(file, {"listenPort": "2", "maxMessageSize": "100"})
    assert file.read_bytes() == (
        b"# \xb4\xf3 kept\nbrokerName = a\\\n  b\n\nlistenPort=2\nlast=x\nmaxMessageSize=100\n"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.conf", "b.conf.bak"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_the_backup_is_as_private_as_the_file(tmp_path, monkeypatch, mode):
    """A password is in both, and in the drafts that become them."""
    file = tmp_path / "broker.properties"
    file.write_text("a=1\n")
    file.chmod(mode)
    (tmp_path / "broker.properties.tmp").write_text("left by a kill")
    seen = []

    def watch(path, data, file_system):
        seen.append(stat.S_IMODE(path.stat().st_mode))
        write_synced(path, data, file_system)

    write_synced = atomic_file.write_synced
    monkeypatch.setattr(atomic_file, "write_synced", watch)
    save_changes(file, {"a": "2"})

    assert seen == [mode, mode]
    assert [stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.iterdir())] == [mode, mode]
    assert (tmp_path / "broker.properties.bak").read_text() == "a=1\n"


def test_saving_makes_a_missing_file_and_follows_a_link(tmp_path):
    target = tmp_path / "deep" / "b.conf"
    save_changes(target, {"a": "1"})
    link = tmp_path / "link.conf"
    link.symlink_to(target)
    save_changes(link, {"a": "2"})
    assert link.is_symlink()
    assert target.read_text() == "a=2\n"


def test_a_file_that_cannot_be_written_stays_as_it_is(tmp_path, monkeypatch):
    file = tmp_path / "b.conf"
    file.write_text("a=1\n")

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rocketbroker.common.file_system.os.fdatasync", full)
    with pytest.raises(ConfigError, match="No space left"):
        save_changes(file, {"a": "2"})
    assert file.read_text() == "a=1\n"


@pytest.mark.parametrize(
    ("content", "what"), [(None, "No such file or directory"), (b"", "is empty"), (b" \n", "is empty")]
)
def test_a_lost_file_is_rejected_and_its_backup_named(tmp_path, content, what):
    file = tmp_path / "b.conf"
    save_changes(file, {"a": "1"})
    save_changes(file, {"a": "2"})
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"b\.conf: .*{what}; .*b\.conf\.bak has the settings before"):
        load_properties(file)


def test_an_empty_file_without_backup_is_one_without_entries(tmp_path):
    file = tmp_path / "b.conf"
    file.write_bytes(b"")
    assert load_properties(file) == []


@pytest.mark.parametrize("value", [r"C:\data", r"D:\1\2", r"a\\\data", r"(\d+)"])
def test_a_backslash_that_would_be_dropped_is_an_error(value: str):
    with pytest.raises(ConfigError, match=r"f:2: storePathRootDir would be .* is dropped; write \\\\ for a backslash"):
        parse_properties(f"a=1\nstorePathRootDir={value}\n", "f")
    ((_, kept),) = [(each.key, each.value) for each in parse_properties(f"p={value}", "f", drops_backslashes=True)]
    assert len(kept) < len(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"C\:\\data", r"C:\data"),
        ("C:/data", "C:/data"),
        (r"\#\!\=\ ", "#!= "),
        (r"a\u0062", "ab"),
        (r"\\\\host\\d", r"\\host\d"),
        ("a\\\n  d", "ad"),
        (r"\"q\"", '"q"'),
    ],
)
def test_escapes_of_java_are_taken(text: str, value: str):
    assert [each.value for each in parse_properties(f"p={text}", "f")] == [value]


@pytest.mark.parametrize("value", [r"C:\new", r"C:\users"])
def test_a_path_whose_backslash_begins_an_escape_is_an_error(value: str):
    with pytest.raises(ConfigError, match=r"f:1: .*write \\\\ for a backslash, or / in a path"):
        parse_properties(f"p={value}", "f")

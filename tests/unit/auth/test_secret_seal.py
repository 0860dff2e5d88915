"""Secrets on disk: sealed, opened, and refused when anything was changed."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.auth.secret_seal import SecretSeal, load_seal
from rocketbroker.common.errors import CodecError, ConfigError

SEAL = SecretSeal(bytes(range(32)))


@given(name=st.text("abc", min_size=1), secret=st.text(st.characters(codec="utf-8"), max_size=100))
def test_a_secret_is_opened_as_it_was_sealed(name: str, secret: str):
    sealed = SEAL.seal(name, secret)
    assert SEAL.open(name, sealed) == secret
    assert secret == "" or base64.b64encode(secret.encode()).decode() not in sealed


def test_one_secret_is_sealed_differently_each_time():
    assert len({SEAL.seal("joe", "geheim") for _ in range(20)}) == 20


def test_a_key_that_was_derived_once_opens_what_it_sealed():
    """A store of an earlier release must stay readable."""
    sealed = "AAECAwQFBgcICQoLDA0OD8xAaCBo1YzjEQNnpGvWgdaPWXaXb3c="
    assert SEAL.open("joe", sealed) == "geheim"
    assert SEAL.key_id == "4dfe0c59f750e591"


def test_any_changed_bit_is_found():
    data = base64.b64decode(SEAL.seal("joe", "geheim"))
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CodecError, match="the sealed secret of user joe was changed, or made by another key"):
            SEAL.open("joe", base64.b64encode(changed).decode())


def test_a_secret_belongs_to_its_user_and_its_key():
    sealed = SEAL.seal("joe", "geheim")
    with pytest.raises(CodecError):
        SEAL.open("root", sealed)
    with pytest.raises(CodecError):
        SecretSeal(bytes(32)).open("joe", sealed)


@pytest.mark.parametrize("text", ["", "x", "ä", "AAAA", base64.b64encode(bytes(31)).decode(), "A" * 43 + "!"])
def test_a_text_that_is_not_a_sealed_secret_is_refused(text: str):
    with pytest.raises(CodecError, match="the sealed secret of user joe is not one"):
        SEAL.open("joe", text)


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="a key of 31 bytes is too short; 32 are needed"):
        SecretSeal(bytes(31))


def test_a_key_file_is_made_once(tmp_path: Path):
    path = tmp_path / "config" / "key"
    made = load_seal(path, may_create=True)
    assert path.stat().st_mode & 0o777 == 0o600
    read = load_seal(path, may_create=False)
    assert read.open("joe", made.seal("joe", "geheim")) == "geheim"
    assert read.key_id == made.key_id
    assert load_seal(tmp_path / "other", may_create=True).key_id != made.key_id


def test_a_missing_key_is_not_replaced_if_a_table_needs_it(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"key is missing: it has the key of the secrets of users\. Restore it"):
        load_seal(tmp_path / "key", may_create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"ab", b"00" * 31, b"00" * 33, b"zz" * 32, b"\xff" * 64])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="holds no key: 64 hexadecimal digits are needed"):
        load_seal(path, may_create=True)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path):
    path = tmp_path / "key"
    load_seal(path, may_create=True)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="has mode 0644"):
        load_seal(path, may_create=True)


def test_a_key_that_cannot_be_read_or_written_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="key cannot be read: Not a directory"):
        load_seal(tmp_path / "file" / "key", may_create=True)
    (tmp_path / "key.tmp").mkdir()
    with pytest.raises(ConfigError, match="key cannot be written: Is a directory"):
        load_seal(tmp_path / "key", may_create=True)


def test_the_tag_of_a_copy_covers_key_nonce_and_every_byte():
    seal, other = SecretSeal(bytes(32)), SecretSeal(bytes(range(32)))
    tags = {
        seal.copy_tag("n", b"copy"),
        seal.copy_tag("m", b"copy"),
        seal.copy_tag("nc", b"opy"),
        seal.copy_tag("n", b"copx"),
        other.copy_tag("n", b"copy"),
    }
    assert len(tags) == 5

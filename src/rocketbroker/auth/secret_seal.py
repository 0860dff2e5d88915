"""Encryption of secrets on disk.

    sealed := base64(nonce[16] | ciphertext | tag[16])

HMAC signatures need the secret itself, so it cannot be stored as a hash. It is stored encrypted by a key that is in a
file of its own, with mode 0600.

- This protects a copy of the table alone: one sent to support or to a slave, a backup without the key file.
- It does not protect from anyone who has both files, can read as the broker's user, reads its memory, or is root. Keep
  the key outside of what is backed up, and the disk encrypted.

Construction: encrypt then authenticate, both by HMAC-SHA256 with keys derived from the one in the file. The key stream
is HMAC(encryption key, nonce | counter), a pseudo-random function in counter mode. The tag is HMAC(authentication key,
name of the user | nonce | ciphertext), cut to 128 bits. It covers the name, so that nobody who can write the table
gives a user the secret of another. A nonce is random and new for each sealing. The standard library has no cipher, and
``cryptography`` is an extra; a secret has some tens of bytes, so the speed does not matter.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from rocketbroker.common.errors import CodecError, ConfigError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.common.private_files import check_private, write_private

KEY_LENGTH: Final = 32
#: Bytes of the nonce of a copy, which is sent as hexadecimal digits.
NONCE_LENGTH: Final = 32
_SALT_LENGTH: Final = 16
_TAG_LENGTH: Final = 16


class SecretSeal:
    """Seals and opens secrets by one key.

    Args:
        key: at least 32 bytes that nobody can guess.
    """

    __slots__ = ("_authentication_key", "_copy_key", "_encryption_key", "key_id")

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_LENGTH:
            raise ValueError(f"a key of {len(key)} bytes is too short; {KEY_LENGTH} are needed")
        self._encryption_key = _derived(key, b"encryption")
        self._authentication_key = _derived(key, b"authentication")
        self._copy_key = _derived(key, b"copy")
        #: Tells keys apart, and nothing about them.
        self.key_id = _derived(key, b"id").hex()[:16]

    def seal(self, username: str, secret: str) -> str:
        """Return the secret of a user as text for the table."""
        nonce = os.urandom(_SALT_LENGTH)
        ciphertext = self._crypt(nonce, secret.encode())
        return base64.b64encode(nonce + ciphertext + self._tag(username, nonce, ciphertext)).decode()

    def open(self, username: str, sealed: str) -> str:
        """Return the secret of a user.

        Raises:
            CodecError: The text was not made by this key for this user, or was changed.
        """
        try:
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if len(data) < _SALT_LENGTH + _TAG_LENGTH:
            raise CodecError(f"the sealed secret of user {username} is not one")
        nonce, ciphertext, tag = data[:_SALT_LENGTH], data[_SALT_LENGTH:-_TAG_LENGTH], data[-_TAG_LENGTH:]
        if not hmac.compare_digest(tag, self._tag(username, nonce, ciphertext)):
            raise CodecError(f"the sealed secret of user {username} was changed, or made by another key")
        return self._crypt(nonce, ciphertext).decode()

    def copy_tag(self, nonce: str, copy: bytes) -> str:
        """Return the MAC of a copy of the table, in hexadecimal digits.

        Args:
            nonce: random text of the server that asked for the copy, so that no other answer fits.
            copy: all bytes of the copy.
        """
        content = nonce.encode()
        return hmac.digest(self._copy_key, len(content).to_bytes(4, "big") + content + copy, "sha256").hex()

    def check_copy(self, nonce: str, copy: bytes, tag: str) -> None:
        """Check the MAC of a copy in constant time.

        Raises:
            CodecError: It is not that of the nonce and these bytes.
        """
        if not hmac.compare_digest(self.copy_tag(nonce, copy).encode(), tag.encode()):
            raise CodecError(
                "the copy of users and policies was changed on its way, is an old one, or its sender has other "
                "innerClientAuthenticationCredentials"
            )

    def _crypt(self, nonce: bytes, data: bytes) -> bytes:
        """Encrypt or decrypt: both combine the data with the key stream."""
        stream = bytearray()
        while len(stream) < len(data):
            counter = (len(stream) // 32).to_bytes(4, "big")
            stream += hmac.digest(self._encryption_key, nonce + counter, "sha256")
        return bytes(byte ^ pad for byte, pad in zip(data, stream, strict=False))

    def _tag(self, username: str, nonce: bytes, ciphertext: bytes) -> bytes:
        name = username.encode()
        content = len(name).to_bytes(4, "big") + name + nonce + ciphertext
        return hmac.digest(self._authentication_key, content, "sha256")[:_TAG_LENGTH]


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, b"rocketbroker access control " + purpose, "sha256")


def shared_key(name: str, secret: str, purpose: str) -> bytes:
    """Return a key that servers with the same inner credentials share; whoever knows these has every right anyway.

    Args:
        name: access key of the inner credentials.
        secret: their secret key.
        purpose: what the key is for.
    """
    return hashlib.sha256(f"rocketbroker {purpose}\n{name}\n{secret}".encode()).digest()


def copy_seal(name: str, secret: str) -> SecretSeal:
    """Return the seal of copies for slaves and proxies, by the inner credentials."""
    return SecretSeal(shared_key(name, secret, "copy of users"))


def load_seal(path: Path, *, may_create: bool, file_system: FileSystem = LOCAL) -> SecretSeal:
    """Return the seal by the key in a file (blocks).

    Args:
        path: the file: 64 hexadecimal digits.
        may_create: make a missing file; false if there is a table that an earlier key has sealed.
        file_system: the disk.

    Raises:
        ConfigError: The file is missing and must not be made, is readable by others, holds no key, or cannot be read or
            written.
    """
    try:
        check_private(path)
        text = path.read_bytes()
    except FileNotFoundError:
        if not may_create:
            raise ConfigError(
                f"{path} is missing: it has the key of the secrets of users. Restore it, or remove the table of users "
                "and create them as new ones"
            ) from None
        key = secrets.token_bytes(KEY_LENGTH)
        try:
            write_private(path, key.hex().encode() + b"\n", file_system)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        return SecretSeal(key)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_LENGTH:
        raise ConfigError(f"{path} holds no key: {2 * KEY_LENGTH} hexadecimal digits are needed; restore the file")
    return SecretSeal(key)

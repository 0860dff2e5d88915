"""A connection whose requests are signed by one user, or by nobody."""

from typing import Any

from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_signature import RequestSigner
from tests.support.raw_client import RawAnswer, RawClient, raw_frame, raw_header


class SignedClient:
    """A raw connection to "host:port" that signs as a user: name and secret."""

    def __init__(self, address: str, user: tuple[str, str] | None = None) -> None:
        self.client = RawClient(address)
        self._signer = None if user is None else RequestSigner(*user)

    def _signed(self, code: int, fields: dict[str, Any] | None, body: bytes) -> dict[str, Any]:
        command = request(code, dict(fields or {}), body)
        if self._signer is not None:
            self._signer.sign(command)
        return command.header  # type: ignore[no-any-return]

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> RawAnswer:
        return self.client.ask(code, self._signed(code, fields, body), body)

    def send(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> None:
        self.client.send(raw_frame(raw_header(code, self._signed(code, fields, body)), body))

    def close(self) -> None:
        self.client.close()

"""Text types of settings: bounded, and safe for the line, record or address that they become part of."""

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

from rocketbroker.common.config.fields import PATH_MAX, Text

_LINE_MAX = 255
_HOST_MAX = 253
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?\Z")
_URL_PATH = re.compile(r"[A-Za-z0-9._~/-]{1,255}\Z")

LINE_WORDS = f"up to {_LINE_MAX} printable characters"
HOST_WORDS = "an IP address or host name, without a port"
URL_HOST_WORDS = "a host name or IP address, with :port unless that is the default"
URL_PATH_WORDS = "1 to 255 of the characters a-z A-Z 0-9 . _ ~ / -"
BIND_WORDS = "an IP address or host name of this machine; 0.0.0.0 or empty means all"


def strip(value: object) -> object:
    """Remove white space around a text of a file, before it is compared."""
    return value.strip() if isinstance(value, str) else value


def is_host(value: str) -> bool:
    """Return true if a text is an IP address, or a name that may have one."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        last = value.rstrip(".").rpartition(".")[2]
        return len(value) <= _HOST_MAX and _HOST.match(value) is not None and not last.isdigit()
    return True


def _is_nobody(value: str) -> bool:
    """Return true if a text is an address that no peer can connect to."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return address.is_unspecified or address.is_multicast


def _check_line(value: str) -> str:
    if len(value) > _LINE_MAX or not value.isprintable():
        raise ValueError("not one short line")
    return value


def _check_host(value: str) -> str:
    if not is_host(value) or _is_nobody(value):
        raise ValueError("not a host")
    return value


def _check_bind_address(value: str) -> str:
    if value and not is_host(value):
        raise ValueError("not a host")
    return value


def _check_url_host(value: str) -> str:
    host, colon, port = value.partition(":")
    if not is_host(host) or (colon and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536)):
        raise ValueError("not a host with a port")
    return value


def _check_url_path(value: str) -> str:
    if not _URL_PATH.match(value):
        raise ValueError("not a part of a path")
    return value


def _check_optional_path(value: str) -> str:
    if "\0" in value or len(value) > PATH_MAX:
        raise ValueError("not a path")
    return value


Line = Annotated[Text, AfterValidator(_check_line)]
Host = Annotated[Text, AfterValidator(_check_host)]
BindAddress = Annotated[Text, AfterValidator(_check_bind_address)]
UrlHost = Annotated[Text, AfterValidator(_check_url_host)]
UrlPath = Annotated[Text, AfterValidator(_check_url_path)]
OptionalPath = Annotated[Text, AfterValidator(_check_optional_path)]

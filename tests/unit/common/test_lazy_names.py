"""Names that load their modules on first use."""

import pytest

from rocketbroker.common import errors
from rocketbroker.common.lazy_names import lazy_names

HOMES = {"CodecError": "..common.errors", "Span": ".spans"}
NAMES = lazy_names("rocketbroker.client", HOMES, optional=[".spans"])


def test_a_name_comes_from_its_module():
    assert NAMES.getattr("CodecError") is errors.CodecError


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'rocketbroker\.client' has no attribute 'Nothing'"):
        NAMES.getattr("Nothing")


def test_names_are_listed_before_their_first_use():
    assert {"CodecError", "Span", "__name__"} <= set(NAMES.dir())
    assert NAMES.all == ["CodecError"], "'import *' leaves out names that need an extra"

"""Names that load their modules on first use."""

import pytest

from rocketbroker.common import errors
from rocketbroker.common.lazy_names import lazy_names

get = lazy_names("rocketbroker.client", {"CodecError": "..common.errors"})


def test_a_name_comes_from_its_module():
    assert get("CodecError") is errors.CodecError


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'rocketbroker\.client' has no attribute 'Nothing'"):
        get("Nothing")

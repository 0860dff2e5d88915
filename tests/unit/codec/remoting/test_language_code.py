import pytest

from rocketbroker.codec.remoting.language_code import LANGUAGE_CODES, LANGUAGES, OTHER, language_name
from tests.support.golden_frames import frames


def test_names_and_codes_lead_to_each_other():
    assert [language_name(code) for code in range(len(LANGUAGES))] == list(LANGUAGES)
    assert all(LANGUAGE_CODES[name] == code for code, name in enumerate(LANGUAGES))


@pytest.mark.parametrize(("name", "code"), [("JAVA", 0), ("CPP", 1), ("GO", 9), ("RUST", 12), ("NODE_JS", 13)])
def test_codes_are_those_of_java(name: str, code: int):
    assert LANGUAGE_CODES[name] == code


@pytest.mark.parametrize("code", [-1, len(LANGUAGES), 127])
def test_an_unknown_code_is_another_language(code: int):
    assert language_name(code) == "OTHER"
    assert LANGUAGES[OTHER] == "OTHER"


def test_each_recorded_language_is_known():
    assert {frame.command().language for frame in frames()} == {"JAVA", "CPP", "GO"}

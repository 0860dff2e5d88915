"""Users, their fields, and their secrets, which no text has."""

import pytest
from rich.pretty import pretty_repr

from rocketbroker.auth.errors import AuthValueError
from rocketbroker.auth.users import (
    User,
    UserStatus,
    UserType,
    check_name,
    initial_user,
    inner_client_user,
    new_user,
    updated_user,
)
from rocketbroker.codec.remoting.bodies.auth import UserInfo

SECRET = "geheim-7"


def test_a_user_is_normal_and_enabled_by_default():
    assert new_user(UserInfo("joe", SECRET)) == User("joe", SECRET, UserType.NORMAL, UserStatus.ENABLE)


def test_words_are_read_in_any_case():
    user = new_user(UserInfo("joe", SECRET, "sUPER", "DISABLE"))
    assert (user.is_super, user.is_enabled) == (True, False)


def test_an_update_changes_only_the_fields_it_has():
    user = User("joe", SECRET, UserType.SUPER, UserStatus.DISABLE)
    assert updated_user(user, UserInfo("joe")) == user
    assert updated_user(user, UserInfo("joe", " ", "", None)) == user
    changed = updated_user(user, UserInfo("joe", "other", "Normal", "enable"))
    assert changed == User("joe", "other", UserType.NORMAL, UserStatus.ENABLE)


def test_no_text_has_the_secret():
    user = User("joe", SECRET)
    info = UserInfo("joe", SECRET)
    for text in (repr(user), str(user), f"{[user]}", repr(info), pretty_repr(user), pretty_repr(info)):
        assert "joe" in text
        assert SECRET not in text
    assert user.info() == UserInfo("joe", None, "Normal", "enable")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "it is blank"),
        ("  ", "it is blank"),
        ("j" * 129, "129 characters exceed the limit of 128"),
        ("j\u043e", "'\u043e' is not allowed"),  # a Cyrillic letter
        ("a b", "' ' is not allowed"),
        ("a\nb", r"'\\n' is not allowed"),
        ("a/b", "'/' is not allowed"),
        ("a,b", "',' is not allowed"),
    ],
)
def test_a_name_is_visible_ascii(name: str | None, reason: str):
    with pytest.raises(AuthValueError, match=reason):
        new_user(UserInfo(name, SECRET))


@pytest.mark.parametrize("name", ["joe", "LTAI5t-x.y_z@shop", "a:b", "!~+="])
def test_a_name_may_have_these_characters(name: str):
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (None, "it is blank"),
        (" \t", "it is blank"),
        ("x" * 65_536, "65,536 bytes exceed the limit of 1,024"),
        ("é" * 513, "1,026 bytes exceed the limit of 1,024"),
        ("geheim\n", r"character 7 is a control character \(U\+000A\)"),
        ("ge\x00heim", r"character 3 is a control character \(U\+0000\)"),
        ("ge\u2028heim", r"U\+2028"),
        ("ge\ud800heim", "character 3 is half of a surrogate pair"),
    ],
)
def test_a_secret_is_bounded_text_and_not_in_the_error(secret: str | None, reason: str):
    with pytest.raises(AuthValueError, match=reason) as refused:
        new_user(UserInfo("joe", secret))
    assert "password of user joe" in str(refused.value)
    assert "heim" not in str(refused.value)


@pytest.mark.parametrize("secret", ["it's", '"quoted"', "a b", "ä€😀", "12345678"])
def test_quotes_blanks_and_other_letters_are_parts_of_a_secret(secret: str):
    assert new_user(UserInfo("joe", secret)).secret == secret


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (UserInfo("joe", SECRET, "Root"), "userType of user joe: 'Root' is unknown; use Super or Normal"),
        (UserInfo("joe", SECRET, "\u017fuper"), "userType of user joe"),  # its upper case is SUPER
        (UserInfo("joe", SECRET, None, "on"), "userStatus of user joe: 'on' is unknown; use enable or disable"),
    ],
)
def test_an_unknown_word_is_refused(info: UserInfo, reason: str):
    with pytest.raises(AuthValueError, match=reason):
        new_user(info)
    with pytest.raises(AuthValueError, match=reason):
        updated_user(User("joe", SECRET), info)


def test_users_of_settings_are_super_users():
    assert initial_user('{"username":"root","password":"geheim-7"}') == User("root", SECRET, UserType.SUPER)
    assert inner_client_user('{"accessKey":"inner","secretKey":"geheim-7","x":1}') == User(
        "inner", SECRET, UserType.SUPER, is_inner=True
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r'; give {"username":"...","password":"..."}'),
        ("root:geheim-7", "JSON is malformed"),
        ('{"username":"root","password":"geheim-7"', "Input data was truncated"),
        ('["root","geheim-7"]', "Expected `object`, got `array`"),
        ('{"username":"root"}', "missing required field `password`"),
        ('{"username":"root","password":7}', r"Expected `str`, got `int` - at `\$.password`"),
        ('{"username":"","password":"geheim-7"}', "username: it is blank"),
        ('{"username":"root","password":"geheim\\n"}', "password of user root: character 7 is a control character"),
        ('{"username":"root","password":"\ud800"}', "initAuthenticationUser: "),
    ],
)
def test_a_setting_that_is_not_a_user_is_refused_without_its_secret(text: str, reason: str):
    with pytest.raises(AuthValueError, match=reason) as refused:
        initial_user(text)
    assert str(refused.value).startswith("initAuthenticationUser: ")
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("text", ["{}", '{"accessKey":"inner"}', '{"username":"inner","password":"geheim-7"}'])
def test_credentials_of_servers_have_other_names(text: str):
    with pytest.raises(AuthValueError, match=r'innerClientAuthenticationCredentials: .*give {"accessKey"'):
        inner_client_user(text)

"""Language codes of the binary header (org.apache.rocketmq.remoting.protocol.LanguageCode)."""

LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}
OTHER = LANGUAGE_CODES["OTHER"]


def language_name(code: int) -> str:
    """Return the name of a language code; an unknown code is ``OTHER``, as in Java."""
    return LANGUAGES[code] if 0 <= code < len(LANGUAGES) else "OTHER"

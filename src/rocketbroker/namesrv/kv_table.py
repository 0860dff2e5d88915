"""Key-value pairs by namespace, with their encoded size."""

from dataclasses import dataclass, field

import msgspec

from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable

_COLON_AND_COMMA = 2


@dataclass(slots=True)
class _Namespace:
    pairs: dict[str, str] = field(default_factory=dict)
    size: int = 0


def text_size(text: str) -> int:
    """Return the size of a text in JSON, quotes included."""
    return len(msgspec.json.encode(text))


def pair_size(key: str, value: str) -> int:
    """Return the size of a pair in a body."""
    return text_size(key) + text_size(value) + _COLON_AND_COMMA


class KVNamespaces:
    """Pairs by namespace.

    ``entries`` counts pairs and namespaces; a namespace outlives its last pair. ``size`` is in bytes.
    """

    def __init__(self, table: dict[str, dict[str, str]] | None = None) -> None:
        self._spaces: dict[str, _Namespace] = {}
        self.entries = 0
        self.size = 0
        for namespace, pairs in (table or {}).items():
            self._space(namespace)
            for key, value in pairs.items():
                self.put(namespace, key, value)

    def _space(self, namespace: str) -> _Namespace:
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = _Namespace()
            self.entries += 1
            self.size += pair_size(namespace, "")
        return space

    def has(self, namespace: str) -> bool:
        """Return true if a namespace was ever used."""
        return namespace in self._spaces

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value, or ``None``."""
        space = self._spaces.get(namespace)
        return None if space is None else space.pairs.get(key)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        space = self._space(namespace)
        old = space.pairs.get(key)
        if old is None:
            self.entries += 1
        more = pair_size(key, value) - (0 if old is None else pair_size(key, old))
        space.pairs[key] = value
        space.size += more
        self.size += more

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value; return false if there was none."""
        space = self._spaces.get(namespace)
        value = None if space is None else space.pairs.pop(key, None)
        if space is None or value is None:
            return False
        size = pair_size(key, value)
        space.size -= size
        self.size -= size
        self.entries -= 1
        return True

    def entries_of(self, namespace: str) -> int:
        """Return the number of pairs in a namespace."""
        return len(self._spaces[namespace].pairs) if namespace in self._spaces else 0

    def size_of(self, namespace: str) -> int:
        """Return the encoded size of a namespace."""
        return self._spaces[namespace].size if namespace in self._spaces else 0

    def encoded(self, namespace: str) -> bytes:
        """Encode all pairs of a namespace as a KVTable."""
        return KVTable(self._spaces[namespace].pairs).encode()

    def encoded_part(self, namespace: str, most_bytes: int) -> tuple[bytes, list[str]]:
        """Encode as many pairs as fit ``most_bytes``, small ones first; return the KVTable and the omitted keys."""
        pairs = self._spaces[namespace].pairs
        sizes = sorted((pair_size(key, value), key) for key, value in pairs.items())
        left_out: list[str] = []
        for size, key in sizes:
            most_bytes -= size
            if most_bytes < 0:
                left_out.append(key)
        dropped = set(left_out)
        kept = {key: value for key, value in pairs.items() if key not in dropped}
        return KVTable(kept).encode(), left_out

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return all pairs, for the file."""
        return {namespace: space.pairs for namespace, space in self._spaces.items()}

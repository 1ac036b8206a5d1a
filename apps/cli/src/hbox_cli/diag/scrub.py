"""Removes secrets from text that leaves the platform.

`Scrub` removes known secrets (seeds of the broker's users, passwords in addresses, tokens of kubeconfigs) wherever they occur, also without a label, and
unknown text that looks like a secret. In doubt it removes the text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hbox_common.redaction import HIDDEN, redacted

#: Longer lines are cut: patterns cost more than their length.
LINE = 16_384

#: Shorter ones would take words out of every sentence.
SHORTEST = 6

_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL)
_NAMES = (
    "password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|key-data|credential|seed|authorization|headers"
)
_PATTERNS = (
    re.compile(r"\bS[ANCOUX][A-Z2-7]{50,60}\b"),  # seeds of nkeys
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),  # JWTs: tokens of service accounts
    re.compile(r"(?i)(?<=\bbearer )[\w.~+/=-]{6,}|(?<=\bbasic )[\w.~+/=-]{6,}"),
    re.compile(r"^[A-Za-z0-9+/=]{48,}$"),  # lines of a key whose beginning is not in the text any more
)
#: What follows such a name; quotes stay, so that JSON stays JSON.
_NAMED = re.compile(
    rf"(?i)((?:{_NAMES})[\w.-]{{0,40}}\\?[\"']?\s{{0,3}}[:=]\s{{0,3}})"
    r"(?:(?P<escaped>\\\")[^\"\\]*|(?P<double>\")(?:[^\"\\]|\\.)*|(?P<single>')[^']*|[^\s,;&}\]\"'\\]+)"
)


class Scrub:
    """`known`: secrets themselves."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        secrets = sorted({word for word in known if len(word) >= SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, secrets))) if secrets else None

    def __call__(self, text: str) -> str:
        """The same text with `***` for secrets; lines beyond LINE are cut."""
        text = _KEY_BLOCK.sub(HIDDEN, text)
        return "".join(self._line(line) for line in text.splitlines(keepends=True))

    def _line(self, line: str) -> str:
        end = "\n" if line.endswith("\n") else ""
        line = line.rstrip("\r\n")
        if self._known is not None:
            line = self._known.sub(HIDDEN, line)
        if len(line) > LINE:
            line = f"{line[:LINE]} ... ({len(line)} characters)"
        line = redacted(line)
        for pattern in _PATTERNS:
            line = pattern.sub(HIDDEN, line)
        return _NAMED.sub(_hide, line) + end


def _hide(found: re.Match[str]) -> str:
    return f"{found[1]}{found['escaped'] or found['double'] or found['single'] or ''}{HIDDEN}"


def of_address(url: str) -> Iterator[str]:
    """User's password of an address, as written and as meant; of several addresses with commas between them, of each."""
    for one in url.split(","):
        try:
            password = urlsplit(one).password
        except ValueError:
            continue
        if password:
            yield from (password, unquote(password))


def of_kubeconfig(path: Path) -> Iterator[str]:
    """Tokens, passwords and keys of a kubeconfig; nothing of one that cannot be read."""
    import yaml  # noqa: PLC0415  a third of a cold start

    try:
        content: Any = yaml.safe_load(path.read_text())
        users = [entry.get("user") or {} for entry in content.get("users") or ()]
    except (OSError, AttributeError, TypeError, yaml.YAMLError, UnicodeError):
        return
    for user in users:
        yield from (str(user[key]) for key in ("token", "password", "client-key-data") if user.get(key))


def of_environment(environment: Mapping[str, str]) -> Iterator[str]:
    """Values of variables that are secret by their names, and passwords in all addresses."""
    for name, value in environment.items():
        if re.search(_NAMES, name, re.IGNORECASE) and not name.endswith(("_SEED", "_FILE")):
            yield value
            yield from (part.partition("=")[2] for part in value.split(","))
        if "://" in value:
            yield from of_address(value)

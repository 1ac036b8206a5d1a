"""Addresses as they may be printed: without the user, password and tokens that stand in them.

Applied where text leaves: to every error of ours (so that it holds in conditions, Events and health pages too), every log record, and all that `hbox` prints.
"""

import re

#: Up to the last @ of an address, since passwords may have one, and a slash. What we write ourselves as an example stays.
_USER = re.compile(r"(?<=://)(?!user:password@)(?:[^\s/@'\"]*:(?:(?!://)[^\s'\"])*|[^\s/'\"?#<>]*)@")
_TOKEN = re.compile(
    r"(?i)(?<=[?&;])([\w.-]*(?:token|password|passwd|secret|api[_-]?key|access[_-]?key|signature|credential|sslpassword|auth)[\w.-]*=)[^&\s'\"#]+"
)

HIDDEN = "***"


def redacted(text: str) -> str:
    """The same text, with `***` for what gives access: `nats://***@host`, `https://host/?token=***`."""
    if "://" not in text:
        return text
    return _TOKEN.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))

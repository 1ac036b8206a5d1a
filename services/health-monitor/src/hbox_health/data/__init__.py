"""The tables of the judgement: as shipped, or an operator's own files of the same names."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from hbox_health.core.judge.rules import BadRules, Rules, parse_rules

FILES = ("codes.yaml", "nvlink5.yaml", "profiles.yaml")


@cache
def shipped_rules() -> Rules:
    """The rules that HBox ships. Raises BadRules if a file is damaged."""
    return parse_rules(*(_shipped(name) for name in FILES))


def read_rules(folder: Path) -> Rules:
    """The rules with the files of the folder in place of the shipped ones of the same name. Raises BadRules."""
    own = {name: folder / name for name in FILES if (folder / name).is_file()}
    if not own:
        raise BadRules(f"{folder}: none of {', '.join(FILES)}")
    try:
        return read_tables({name: path.read_text() for name, path in own.items()})
    except (OSError, UnicodeDecodeError, BadRules) as e:
        raise BadRules(f"{folder}: {e}") from None


def read_tables(texts: Mapping[str, str]) -> Rules:
    """The rules with these texts in place of the shipped files of the same name. Raises BadRules."""
    return parse_rules(*(texts[name] if name in texts else _shipped(name) for name in FILES))


def _shipped(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text()

"""The tables of the judgement: as shipped, or an operator's own files of the same names."""

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
        return parse_rules(*(own[name].read_text() if name in own else _shipped(name) for name in FILES))
    except (OSError, UnicodeDecodeError) as e:
        raise BadRules(f"{folder}: {e}") from None
    except BadRules as e:
        raise BadRules(f"{folder}: {e}") from None


def _shipped(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text()

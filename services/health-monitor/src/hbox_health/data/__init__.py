"""The tables of the judgement, as shipped; an operator's own replace them by name."""

from functools import cache
from importlib import resources

from hbox_health.core.judge.rules import Rules, parse_rules


@cache
def shipped_rules() -> Rules:
    """The rules that HBox ships. Raises BadRules if a file is damaged."""
    folder = resources.files(__package__)
    return parse_rules(*(folder.joinpath(f"{name}.yaml").read_text() for name in ("codes", "nvlink5", "profiles")))

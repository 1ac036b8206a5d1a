"""Label selectors as plain values."""

from hbox_common.model import Match, MatchOperator, Selector

from .objects import LabelSelector

#: Labels are not compared as numbers here.
_OPERATORS = frozenset({MatchOperator.IN, MatchOperator.NOT_IN, MatchOperator.EXISTS, MatchOperator.DOES_NOT_EXIST})


def selector_of(selector: LabelSelector | None) -> Selector | None:
    """Raises ValueError for an operator that label selectors do not have."""
    if selector is None:
        return None
    matches = [Match(key, MatchOperator.IN, (value,)) for key, value in sorted(selector.match_labels.items())]
    for one in selector.match_expressions:
        operator = MatchOperator(one.operator)
        if operator not in _OPERATORS:
            raise ValueError(f"{one.operator!r} in a label selector")
        matches.append(Match(one.key, operator, one.values))
    return Selector(tuple(matches))

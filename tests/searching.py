"""How long tests search that draw their examples: `make fuzz` tries all that they ask for, others each time, and `make test` a third, or a sixth where they are
dear, the same each time.

The same again and again finds what a change breaks, for which few do; what nobody thought of is found by others. A test that needs more of the same to see its
planted faults asks for more.
"""

from typing import Any

from hypothesis import Phase, settings

FIXED, RANDOM = "fixed", "random"
#: As FIXED, for `make mutants`, which asks whether a test fails and not by how small an example.
UNSHRUNK = "unshrunk"
#: Of the examples of a test `make test` has one in so many, but FEW where there are no more.
PART, FEW = 3, 30
#: Of one whose examples cost seconds together: so much less.
DEAR = 2
#: Of a test that asks for no number.
DEFAULT = 100


def register() -> None:
    """The profiles; FIXED is the one that holds unless another is asked for by --hypothesis-profile."""
    settings.register_profile(FIXED, derandomize=True, deadline=None, max_examples=_part(DEFAULT))
    settings.register_profile(UNSHRUNK, settings.get_profile(FIXED), phases=[Phase.explicit, Phase.generate])
    settings.register_profile(RANDOM, print_blob=True, deadline=None, max_examples=DEFAULT)
    settings.load_profile(FIXED)


def examples(most: int, *, dear: bool = False, fixed: int | None = None, **more: Any) -> settings:
    """For a test that tries `most` in `make fuzz`; `dear`: `make test` has half as many as of others; `fixed`: as many as this; `more` as
    `hypothesis.settings` has it."""
    fixed = fixed or (_part(most) // DEAR if dear else _part(most))
    return settings(max_examples=most if settings.get_current_profile_name() == RANDOM else fixed, **more)


def _part(most: int) -> int:
    return max(most // PART, min(most, FEW))

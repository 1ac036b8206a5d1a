"""The policy that a platform follows, as the text of its file."""

from pathlib import Path

from hbox_common.yamltext import read_file
from hbox_scheduler.core.policy.default import PolicyName, default_text

from ..platform.layout import Layout


def policy_text(state: Path | None, given: Path | None) -> str | None:
    """Of the file `given`; else of the platform of `hbox up` in this state folder; None: HBox's own. Raises InvalidRequest, NotFound."""
    if given is None and state is not None:
        named = Layout(state).running().policy
        if named in list(PolicyName):
            return default_text(PolicyName(named))
        given = Path(named) if Path(named).is_file() else None
    return None if given is None else read_file(given).decode(errors="replace")

"""Which changes of incidents are logged. All are published."""

from hbox_common.model import Incident, IncidentState

#: An incident changes between these two whenever the last pod leaves its hardware, or another one comes.
_BY_PODS = frozenset({IncidentState.CONFIRMED, IncidentState.DRAINING})
#: Texts that are remembered of one incident.
MOST_TEXTS = 16


class IncidentLog:
    """Each state with its text is logged once, and once more after the incident was repaired or checked without success: more evidence is no news, nor are pods
    that come and go."""

    def __init__(self) -> None:
        self._logged: dict[str, dict[tuple[IncidentState, str], None]] = {}

    def note(self, incident: Incident) -> bool:
        """Whether the incident is to be logged as it is now."""
        now = incident.state, incident.why
        if incident.state is IncidentState.CLOSED:
            self._logged.pop(incident.id, None)
            return True
        logged = self._logged.setdefault(incident.id, {})
        if now in logged:
            return False
        if incident.state not in _BY_PODS or not all(state in _BY_PODS for state, _ in logged):
            logged.clear()
        logged[now] = None
        if len(logged) > MOST_TEXTS:
            del logged[next(iter(logged))]
        return True

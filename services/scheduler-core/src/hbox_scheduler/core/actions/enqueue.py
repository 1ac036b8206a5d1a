"""enqueue: admission before everything else. A gang is admitted when the plugins agree, so that no pods are created that could not start."""

from hbox_common.model import GroupPhase

from ..framework.session import Session
from ..framework.turns import ServiceOrder


def run(session: Session) -> None:
    """Queues in turn, one gang a turn, each in its order; those that pass are INQUEUE; why the others do not is their verdict."""
    turns = ServiceOrder(session, (gang for gang in session.fresh if gang.phase is GroupPhase.PENDING))
    while (gang := turns.next()) is not None:
        if gang.min_resources is None or session.enqueueable(gang):
            session.enqueue(gang)
        else:
            session.outcome.verdicts[gang.id] = session.reject_reason(gang)

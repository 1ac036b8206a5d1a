"""What a reader of one queue is told of it: nothing that names another."""

from hbox_common.events import Usage
from hbox_common.model import Queue, QueueName
from hbox_ledger.api import QueueAnswer, _summed, _within

ML, TRAIN = QueueName("ml"), QueueName("ml-train")
SCOPE = (ML, TRAIN)
OTHERS = (QueueName("dept"), QueueName("secret.team"), QueueName("ml-serve"))


def answer(queue: Queue, *faults: str) -> QueueAnswer:
    return QueueAnswer(
        rules=queue, used={}, total={}, borrowed={}, spent=0, recent_cards=0.0, half_life_h=1.0, faults=tuple(faults)
    )


def test_what_stands_above_and_whom_it_lends_to_is_left_out() -> None:
    told = _within(answer(Queue(ML, parent="dept", lent_to=("secret.team", "ml-train"))), SCOPE, OTHERS)
    assert (told.rules.parent, told.rules.lent_to) == ("", ("ml-train",))
    assert _within(answer(Queue(TRAIN, parent="ml")), SCOPE, OTHERS).rules.parent == "ml"


def test_words_that_name_another_queue_are_left_out_and_others_stand() -> None:
    own, foreign = "ml deserves 4, more than its capability", "ml and secret.team deserve more than dept"
    queue = Queue(ML, stopped="the budget of dept is spent", fault=own)
    told = _within(answer(queue, own, foreign), SCOPE, OTHERS)
    assert told.faults == (own, "which another queue is part of")
    assert (told.rules.stopped, told.rules.fault) == ("which another queue is part of", own)
    # A name that is part of another word is no name; one of other signs than letters is found.
    assert _within(answer(Queue(ML), "independent", "deptford"), SCOPE, OTHERS).faults == ("independent", "deptford")
    assert _within(answer(Queue(ML), "see ml-serve."), SCOPE, OTHERS).faults == ("which another queue is part of",)
    assert _within(answer(Queue(ML), own), SCOPE, ()).faults == (own,)


def test_rows_of_equal_keys_are_summed() -> None:
    rows = [
        Usage(user="a", own=1, borrowed=2, idle=0),
        Usage(user="b", own=5, borrowed=0, idle=0),
        Usage(user="a", own=10, borrowed=20, idle=1),
    ]
    assert [(row.user, row.own, row.borrowed, row.idle) for row in _summed(rows)] == [("a", 11, 22, 1), ("b", 5, 0, 0)]

"""The undo journal of one attempt: batches booked on the columns, which a gang that does not fit takes back."""

from .columns import Batch, Columns


class Journal:
    """Books batches at once; `rollback` takes all of them back, newest first, and every cell is what it was before."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._done: list[Batch] = []

    def book(self, batch: Batch) -> None:
        self._columns.apply(batch)
        self._done.append(batch)

    def rollback(self) -> None:
        while self._done:
            self._columns.apply(self._done.pop(), -1)

"""Events of unreadable objects, for the users who wrote them."""

import asyncio
import logging
from collections.abc import Collection
from typing import NoReturn

from hbox_common.errors import HBoxError
from hbox_common.kube import EventWriter, Involved, KubeClient, Resource
from hbox_common.kube.eventwriter import MAX_NOTE
from hbox_common.visible import visible

log = logging.getLogger(__name__)

#: Between two Events, whatever is written into objects.
EVENT_EVERY_S = 1.0


class Problems:
    """Of one kind, which has no namespace. `current`: what is wrong, by name, as long as object and fault are there: bounded by what the cluster has."""

    def __init__(self, client: KubeClient, resource: Resource, kind: str, *, reason: str) -> None:
        self._about, self._kind, self._reason = f"{resource.group}/{resource.version}", kind, reason
        self._events = EventWriter(client, component="hbox", instance="topology-collector")
        self.current: dict[str, tuple[str, str]] = {}  #: uid and text of its Event
        self._pending: dict[str, tuple[str, str]] = {}  #: the same, of Events that are due
        self._due = asyncio.Event()

    def put(self, name: str, uid: str, text: str) -> bool:
        """Something is wrong with the object. Returns whether that is new."""
        note = uid, visible(text)[:MAX_NOTE]
        if self.current.get(name) == note:
            return False
        self.current[name] = self._pending[name] = note
        self._due.set()
        return True

    def drop(self, name: str) -> None:
        """Nothing is wrong with it any more, or it is gone."""
        self.current.pop(name, None)
        self._pending.pop(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Nothing is wrong with any others."""
        for name in self.current.keys() - set(names):
            self.drop(name)

    async def run(self) -> NoReturn:
        """Writes what is due, one a second at most, until cancelled."""
        warned = ""
        while True:
            await self._due.wait()
            if not self._pending:
                self._due.clear()
                continue
            name = next(iter(self._pending))
            uid, text = self._pending.pop(name)
            try:
                await self._events.write(
                    Involved(self._about, self._kind, "", name, uid), reason=self._reason, message=text, warning=True
                )
                warned = ""
            except HBoxError as e:  # the log has it; it is not tried again
                if str(e) != warned:
                    log.warning("Events of %ss cannot be written: %s", self._kind, e)
                warned = str(e)
            await asyncio.sleep(EVENT_EVERY_S)

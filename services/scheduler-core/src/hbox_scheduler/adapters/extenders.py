"""Questions of plugins to web services of the user's (`core/framework/webhooks.py` is the port).

A simulation waits for each answer (`ask_now`). The service never does: its loop has leases and messages to serve. A question that is new is put on its
way, the job waits, and the answer wakes it (`Extenders`).
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import aiohttp

from hbox_common.errors import Unavailable

from ..core.framework.webhooks import Question

log = logging.getLogger(__name__)

#: Seconds after which an answer in use is requested again.
BELIEVED_S = 5.0
AT_ONCE = 8
MAX_QUESTIONS = 1024
MAX_ANSWER_BYTES = 16 << 20


@dataclass(slots=True)
class _Known:
    """An answer, or why there is none."""

    answer: Mapping[str, Any]
    error: str
    fresh: bool = True
    used: bool = False


def ask_now(question: Question) -> Mapping[str, Any] | None:
    """The answer, waited for. Not to be called on a running loop. Raises Unavailable."""

    async def ask() -> Mapping[str, Any]:
        async with aiohttp.ClientSession() as client:
            return await _post(client, question)

    return asyncio.run(ask())


class Extenders:
    """Calls `changed` when a new answer arrives, and when an answer is due to be requested again."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._known: dict[Question, _Known] = {}
        self._asked: set[Question] = set()
        self._questions: asyncio.Queue[Question] = asyncio.Queue(MAX_QUESTIONS)
        self._complaints: dict[str, str] = {}

    def ask(self, question: Question) -> Mapping[str, Any] | None:
        """The port. Raises Unavailable."""
        known = self._known.get(question)
        if (known is None or not known.fresh) and question not in self._asked:
            try:
                self._questions.put_nowait(question)
            except asyncio.QueueFull:
                raise Unavailable(f"{question.url}: {MAX_QUESTIONS} questions wait for an answer") from None
            self._asked.add(question)
        if known is None:
            return None
        known.used = True
        if known.error:
            raise Unavailable(known.error)
        return known.answer

    @property
    def known(self) -> int:
        """Answers that are kept."""
        return len(self._known)

    async def run(self) -> None:
        """Until cancelled."""
        async with aiohttp.ClientSession() as client, asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._serve(client))

    async def _serve(self, client: aiohttp.ClientSession) -> NoReturn:
        while True:
            question = await self._questions.get()
            try:
                known = _Known(await _post(client, question), "")
            except Unavailable as e:
                known = _Known({}, e.message)
            self._complain(question.url, known.error)
            self._asked.discard(question)
            before = self._known.get(question)
            self._known[question] = known
            asyncio.get_running_loop().call_later(BELIEVED_S, self._age, question, known)
            if before is None or (before.answer, before.error) != (known.answer, known.error):
                self._changed()

    def _age(self, question: Question, known: _Known) -> None:
        """Answers in use become due, for the pods that still wait; the others are dropped."""
        if self._known.get(question) is not known:
            return
        if known.fresh and known.used:
            known.fresh = False
            asyncio.get_running_loop().call_later(BELIEVED_S, self._age, question, known)
            self._changed()
        else:
            del self._known[question]

    def _complain(self, url: str, error: str) -> None:
        """Log an error once until it changes."""
        if error and self._complaints.get(url) != error:
            log.warning("extender %s", error)
        self._complaints[url] = error


def _error_text(error: OSError) -> str:
    """asyncio writes addresses in place of the system's words; name look-ups have words of their own."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


async def _post(client: aiohttp.ClientSession, question: Question) -> Mapping[str, Any]:
    url = question.url
    try:
        async with client.post(
            url,
            data=question.body,
            headers={"Content-Type": "application/json"},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=question.timeout_s),
        ) as response:
            if response.status != 200:
                raise Unavailable(f"{url}: answered {response.status} {response.reason or ''}".rstrip())
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise Unavailable(f"{url}: the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
    except TimeoutError as e:
        raise Unavailable(f"{url}: no answer within {question.timeout_s:g} s") from e
    except aiohttp.ClientConnectorError as e:
        raise Unavailable(f"{url}: {_error_text(e.os_error)}") from e
    except (aiohttp.ClientError, ValueError) as e:
        raise Unavailable(f"{url}: {str(e) or type(e).__name__}") from e
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise Unavailable(f"{url}: the answer is not JSON") from e
    if not isinstance(answer, dict):
        raise Unavailable(f"{url}: the answer is not a JSON object")
    return answer

"""Reads and simulates one file after the other, and returns a row for each. A faulty file gives a row with the error."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hbox_common.errors import Bug, HBoxError, InvalidRequest
from hbox_common.model import VENDORS
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.framework.webhooks import Question
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.ledgerrules import as_the_ledger_judges
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.cycles import CycleOptions, simulate

from .cluster_file import DEVICES_KEY, POLICY_KEY, cluster_of, config_of
from .documents import Document, documents_of
from .outcome import Row, failed, row_of
from .usage import doubts


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of the command. None = the value in the file."""

    explain: bool = False
    cycles: int | None = None
    policy: str | None = None  #: the text of volcano-scheduler.conf
    policy_file: str = ""  #: where that came from
    schedulers: Collection[str] = ("hbox",)
    now: float = 0.0  #: seconds since the epoch
    #: True: policies are read as the running services read them (`as_the_ledger_judges`, `protected`), as HBox's own policy always is. None: only the policy of
    #: `policy` is, and the file's own policy is read as written
    as_services: bool | None = None
    bound: bool = False  #: a queue without a list of namespaces admits none (`HBOX_QUEUES`)
    debug: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    row: Row
    error: HBoxError | None = None


def answers(files: Sequence[Path], wish: Wish) -> Iterator[Answer]:
    """An answer for each file, in order. Raises InvalidRequest where the policy of the wish is wrong; no file's error stops the others."""
    conf = None if wish.policy is None else _conf(wish.policy, wish.policy_file)
    for file in files:
        try:
            yield Answer(outcome_of(str(file), documents_of(file), wish, conf))
        except HBoxError as e:
            yield _failed(file, e)
        except Exception as e:
            if wish.debug:
                raise
            yield _failed(file, Bug(f"{type(e).__name__}: {e}", hint="run it again with --debug, and send us what it prints"))


def outcome_of(file: str, documents: Sequence[Document], wish: Wish, conf: Conf | None = None) -> Row:
    """The row of one file. `conf`: the policy of the wish, parsed. Raises InvalidRequest."""
    text = config_of(documents, DEVICES_KEY)
    with ExitStack() as stack:
        try:
            device_warnings = stack.enter_context(VENDORS.configured(text))
        except InvalidRequest as e:
            raise InvalidRequest(f"{DEVICES_KEY}: {e.message}", hint=e.hint) from e
        return _outcome_of(file, documents, wish, conf, tuple(f"{DEVICES_KEY}: {one}" for one in device_warnings))


def _outcome_of(
    file: str, documents: Sequence[Document], wish: Wish, conf: Conf | None, device_warnings: tuple[str, ...]
) -> Row:
    own = config_of(documents, POLICY_KEY) if conf is None else None
    as_services = own is None if wish.as_services is None else wish.as_services
    if conf is None and own is None:
        conf, as_services = _conf(DEFAULT_CONF, "the default policy"), True
    elif conf is None:
        conf = _conf(own or "", POLICY_KEY)
    saved = cluster_of(documents, schedulers=wish.schedulers, now=wish.now, as_services=as_services, bound=wish.bound)
    if as_services:
        conf = as_the_ledger_judges(conf)
    options = saved.options
    cycles = wish.cycles or options.cycles
    plan = CycleOptions(
        cycles=cycles,
        requeue_evicted=cycles > 1 if options.requeue_evicted is None else options.requeue_evicted,
        explain=wish.explain,
        now=wish.now + options.before_cycle_wait_seconds,
    )
    ignored = [str(error) for error in conf.ignored]
    saved = replace(
        saved, warnings=(*device_warnings, *ignored, *saved.warnings, *doubts(conf, saved.cluster.facts.usage, now=plan.now))
    )
    report = simulate(saved.columns, saved.cluster, conf, plan, _ask)
    return row_of(file, saved, report, explain=wish.explain)


def _ask(question: Question) -> Mapping[str, Any] | None:
    from hbox_scheduler.adapters.extenders import ask_now  # noqa: PLC0415  only a policy with an extender needs a web client

    return ask_now(question)


@lru_cache(maxsize=256)
def _conf(text: str, where: str) -> Conf:
    try:
        return parse_conf(text, plugins=tuple(PLUGINS))
    except InvalidRequest as e:
        raise InvalidRequest(f"{where}: {e.message}", hint=e.hint) from e


def _failed(file: Path, error: HBoxError) -> Answer:
    named = type(error)(f"{file}: {error.message}", hint=error.hint)
    return Answer(failed(str(file), str(error)), named)

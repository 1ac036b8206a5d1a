"""Changes of objects: as requests with the user's rights, and as the kubectl commands that do the same."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from hbox_common.errors import Conflict, InvalidRequest, NotFound

from ..access.cluster import MERGE_PATCH, ClusterApi, Kind, Object
from ..output import notify, put

F = TypeVar("F", bound=Callable[..., Any])

CLIENT, SERVER = "client", "server"
#: What `--dry-run=server`, as kubectl has it, becomes (`hbox_cli.__main__`): an option of click takes a value always or never.
SERVER_DRY_RUN = "--server-dry-run"


def dry_run_option(command: F) -> F:
    """`--dry-run` and `--dry-run=client`, `--dry-run=server`, as the parameter `dry_run`; None without it."""
    for option in (
        click.option("--dry-run", flag_value=CLIENT, help="Print the kubectl commands that do the same; change nothing."),
        click.option(
            SERVER_DRY_RUN, "dry_run", flag_value=SERVER, help="Also `--dry-run=server`: let the API server check them too."
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Change:
    """One request. `done`: what it did, for people."""

    verb: str  #: create, patch or delete
    kind: Kind
    namespace: str
    name: str
    done: str
    body: Mapping[str, Any] | None = None

    def kubectl(self) -> str:
        where = ["-n", self.namespace] if self.kind.namespaced else []
        match self.verb:
            case "create":
                return f"{_joined('kubectl', *where, 'create', '-f', '-')} <<'EOF'\n{json.dumps(self.body)}\nEOF"
            case "patch":
                body = json.dumps(self.body, separators=(",", ":"))
                return _joined("kubectl", *where, "patch", self.kind.resource, self.name, "--type", "merge", "-p", body)
            case _:
                return _joined("kubectl", *where, "delete", self.kind.resource, self.name)

    def send(self, api: ClusterApi, *, dry_run: bool = False) -> Object:
        params = {"dryRun": "All"} if dry_run else {}
        path = self.kind.path(self.namespace, "" if self.verb == "create" else self.name)
        match self.verb:
            case "create":
                found = api.server.send(
                    "POST", path, self.body, params={**params, "fieldManager": "hbox", "fieldValidation": "Strict"}
                )
            case "patch":
                found = api.server.send(
                    "PATCH", path, self.body, content_type=MERGE_PATCH, params={**params, "fieldManager": "hbox"}
                )
            case _:
                # With a body, the API server ignores these options in the query: its dependents would be orphaned.
                options = {"propagationPolicy": "Background", **(self.body or {}), **({"dryRun": ["All"]} if dry_run else {})}
                found = api.server.send("DELETE", path, options)
        result: Object = found if isinstance(found, Mapping) else {}
        return result


def carry_out(api: ClusterApi, changes: Sequence[Change], dry_run: str | None) -> None:
    """Sends the changes in order, or prints them."""
    for change in changes:
        if dry_run is not None:
            if dry_run == SERVER:
                change.send(api, dry_run=True)
            put(*change.kubectl().splitlines())
            continue
        try:
            change.send(api)
        except NotFound:
            if change.verb != "delete":
                raise
            continue
        except Conflict as e:
            raise Conflict(e.message, hint=e.hint or "look at it again with `hbox show`, then repeat the command") from e
        notify(change.done)


def confirm(question: str, *, yes: bool, again: str) -> None:
    """Asks on a terminal. Raises InvalidRequest without a terminal, click.Abort if the answer is no."""
    import sys  # noqa: PLC0415

    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(f"{question} Standard input is no terminal to ask on", hint=f"{again} --yes")
    click.confirm(question, abort=True, err=True)


def _joined(*arguments: str) -> str:
    return shlex.join(arguments)

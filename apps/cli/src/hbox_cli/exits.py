"""Exit statuses of every command, and the three lines that report a failure: what failed, why, and what to do next."""

from enum import IntEnum

from hbox_common.errors import Bug, Conflict, HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.visible import visible


class Exit(IntEnum):
    """As `hbox --help` and docs/guides/cli.md list them."""

    OK = 0
    FAILED = 1  #: an internal error; a fault that an audit or a check found
    USAGE = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    INVALID = 5  #: an argument is wrong, or contradicts the present state
    UNAVAILABLE = 6  #: a component does not answer; a retry may help
    WAITS = 7  #: `plan`: the job is valid, and would wait
    NEVER = 8  #: `plan`: the job cannot run here, whatever ends
    TIMED_OUT = 124
    INTERRUPTED = 130


class Faulty(HBoxError):
    """The command did its work, and what it looked at is not right."""


def status_of(error: BaseException) -> Exit:
    match error:
        case NotFound():
            return Exit.NOT_FOUND
        case InvalidRequest() if "HTTP 403" in error.message or "HTTP 401" in error.message:
            return Exit.NOT_ALLOWED
        case InvalidRequest() | Conflict() | PermissionError():
            return Exit.INVALID
        case Unavailable():
            return Exit.UNAVAILABLE
        case TimeoutError():
            return Exit.TIMED_OUT
        case KeyboardInterrupt():
            return Exit.INTERRUPTED
        case _:
            return Exit.FAILED


_NEXT = {
    Exit.USAGE: "hbox --help",
    Exit.NOT_ALLOWED: "use a kubeconfig whose user may do this",
    Exit.INVALID: "correct what was given, and try again",
    Exit.UNAVAILABLE: "hbox check",
    Exit.TIMED_OUT: "hbox check",
    Exit.NOT_FOUND: "hbox --help",
    Exit.FAILED: "run it again with --debug, and send us what it prints",
}


def failure_text(command: str, error: BaseException) -> str:
    """The three lines. `command`: as typed, for example `hbox nodes`."""
    status = status_of(error)
    message = error.message if isinstance(error, HBoxError) else f"{type(error).__name__}: {error}"
    if isinstance(error, TimeoutError) and str(error):
        message = str(error)
    if isinstance(error, PermissionError):
        message = f"{error.filename}: {error.strerror}"
    hint = error.hint if isinstance(error, HBoxError) else ""
    kind = "a bug in HBox" if isinstance(error, Bug) else status.name.lower().replace("_", " ")
    lines = [f"{command} did not succeed ({kind}, exit status {int(status)})", f"  why   {_one_line(message)}"]
    step = hint or _NEXT.get(status, "hbox check")
    if command == "hbox check" and command in step:  # `hbox check` itself was not answered
        step = "read the services' logs in the folder logs of the platform's state"
    lines.append(f"  next  {_one_line(step)}")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def leaf(error: BaseException) -> BaseException:
    """Of a group of errors the first that HBox raised on purpose, else the first."""
    while isinstance(error, BaseExceptionGroup):
        known = error.subgroup(HBoxError)
        error = (known or error).exceptions[0]
    return error

"""`-w`: a list again and again. On a terminal it is drawn anew; elsewhere each change is one JSON object on a line."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from hbox_common.errors import InvalidRequest, Unavailable

from .output import Changes, Form, Output, notify

POLL_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"


def repeat(output: Output, command: Callable[[Output], Any]) -> None:
    """Until Ctrl-C. A source that does not answer is asked again, with a remark when that begins and ends."""
    drawn = output.people and sys.stdout.isatty()
    if output.form not in (Form.TABLE, Form.WIDE, Form.NDJSON):
        raise InvalidRequest(f"-w has no form {output.form.value}", hint="-o ndjson: one object a line for each change")
    if not drawn:
        output = replace(output, form=Form.NDJSON, changes=Changes())
    silent = False
    while True:
        if drawn:
            click.echo(_CLEAR, nl=False)
        try:
            command(output)
            if silent:
                notify("hbox: the platform answers again")
            silent = False
        except Unavailable as e:
            if not silent:
                notify(f"hbox: {e.message}; it is asked again every {POLL_S:g} s")
            silent = True
        with suppress(AttributeError):
            sys.stdout.flush()
        time.sleep(POLL_S)

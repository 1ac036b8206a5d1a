"""Options that several commands have."""

import os
from pathlib import Path

import click

from hbox_common.errors import InvalidRequest


def mounted(name: str) -> str | None:
    """The value `name` in the folder of HBOX_SECRETS, as in a service's pod; None without it. Raises InvalidRequest if it cannot be read."""
    folder = os.environ.get("HBOX_SECRETS", "")
    file = Path(folder) / name
    try:
        return file.read_text().strip() if folder and file.is_file() else None
    except (OSError, UnicodeError) as e:
        raise InvalidRequest(f"HBOX_SECRETS: {file} cannot be read: {e}", hint="may this user read it?") from e


#: The services' setting HBOX_QUEUES, as the parameter `queues`: "open" or "bound".
queues_option = click.option(
    "--queues",
    type=click.Choice(("open", "bound")),
    envvar="HBOX_QUEUES",
    default="open",
    show_default=True,
    help="Access to a queue without a list of namespaces (its own or an ancestor's): every namespace, or none.",
)

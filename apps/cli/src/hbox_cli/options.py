"""Options that several commands have."""

import click

#: The services' setting HBOX_QUEUES, as the parameter `queues`: "open" or "bound".
queues_option = click.option(
    "--queues",
    type=click.Choice(("open", "bound")),
    envvar="HBOX_QUEUES",
    default="open",
    show_default=True,
    help="Access to a queue without a list of namespaces (its own or an ancestor's): every namespace, or none.",
)

"""The hbox command."""

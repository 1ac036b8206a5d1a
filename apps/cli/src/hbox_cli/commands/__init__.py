"""One module a command; each has a `command`, imported when it is run."""

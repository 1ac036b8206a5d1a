"""The steps of a cycle beside plain placement: admission, sessions, nominations, moves."""

"""The steps of a cycle other than plain placement: admission, sessions, nominations, moves."""

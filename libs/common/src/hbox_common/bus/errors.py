"""Errors inside the bus; its callers see only HBox's common errors."""

from hbox_common.errors import HBoxError, InvalidRequest


class StreamApiError(HBoxError):
    """JetStream's refusal of an API call or a publish. Codes: nats-server `server/errors.json`."""

    def __init__(self, *, code: int, err_code: int, description: str) -> None:
        super().__init__(f"JetStream: {description} ({err_code or code})")
        self.code, self.err_code = code, err_code


class NotPermitted(InvalidRequest):
    """The broker does not let this user publish there."""


class Broken(HBoxError):
    """A pull subscription that will bring nothing any more: make a new one."""


class Outdated(HBoxError):
    """A reader of last values was away for longer than deletion messages are kept: its state may contain deleted objects and must be rebuilt."""


#: err_code values that we act upon.
STREAM_NOT_FOUND = 10059
STREAM_NAME_IN_USE = 10058
STREAM_MISMATCH = 10060
MESSAGE_TOO_LARGE = 10054
CONSUMER_NOT_FOUND = 10014
NO_PEERS = 10005

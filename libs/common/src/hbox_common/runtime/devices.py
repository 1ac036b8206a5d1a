"""Device settings of a process in addition to the built-in ones: `device_config` and `card_resources`."""

from pathlib import Path

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.devices.bymodel import parse_card_resources
from hbox_common.yamltext import read_file


def configure_devices(*, device_config: Path | None, card_resources: str) -> tuple[str, ...]:
    """Apply these settings for the rest of the process; to be called before any device name is used. Returns warnings about settings without effect.

    Raises InvalidRequest that names file and key, or the resource, and the correction.
    """
    warnings: tuple[str, ...] = ()
    if device_config is not None:
        text = read_file(device_config)
        try:
            warnings = VENDORS.configure(text.decode())
        except UnicodeDecodeError as e:
            raise InvalidRequest(f"{device_config}: {e}", hint="it has to be YAML in UTF-8") from e
        except InvalidRequest as e:
            raise InvalidRequest(f"{device_config}: {e.message}", hint=e.hint) from e
    try:
        VENDORS.count_by_model(parse_card_resources(card_resources))
    except InvalidRequest as e:
        raise InvalidRequest(f"card_resources: {e.message}", hint=e.hint) from e
    return tuple(f"{device_config}: {warning}" for warning in warnings)

"""Settings of a service: environment over secret over file over default, each value checked, each error in one clear line.

`HBOX_<FIELD>` sets a field. `HBOX_SECRETS` names a folder, as a mounted Secret, whose file `<field>` holds the value of that field. `HBOX_CONFIG` names a
YAML file whose top level holds fields of every service and, under a service's name, fields of that service alone:

    nats_url: nats://nats:4222
    binder:
      binds_per_s: 500
"""

import difflib
import os
import socket
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from hbox_common.bus import Access
from hbox_common.bus.users import REMEDY, SERVICES
from hbox_common.errors import InvalidRequest
from hbox_common.model.devices.bymodel import parse_card_resources
from hbox_common.telemetry.logs import LogFormat
from hbox_common.yamltext import settings_of

S = TypeVar("S", bound="Settings")

#: Sections of the file: the users of the broker, and those that have none of their own.
_SECTIONS = frozenset({*SERVICES, REMEDY, "admission"})


class Settings(BaseSettings):
    """Base class of all services' settings. Subclasses add their own fields, each with a description and a working default."""

    model_config = SettingsConfigDict(env_prefix="HBOX_", extra="forbid", frozen=True, env_ignore_empty=True)

    service: ClassVar[str] = ""
    drain_s: ClassVar[float] = 0.0  #: seconds from SIGTERM until a process that has not ended is abandoned; 0: `run.DRAIN_S`

    nats_url: str = Field(
        "nats://127.0.0.1:4222", description="Address of the NATS broker; separate several addresses with commas."
    )
    nats_seed: Path | None = Field(
        None,
        description="File with the nkey seed of this service's NATS user. Required if the broker authenticates its clients.",
    )
    nats_ca: Path | None = Field(
        None,
        description="File with the CA certificates that sign the broker's certificate; for tls:// addresses and brokers that "
        "require TLS.",
    )
    nats_certificate: Path | None = Field(
        None, description="Client certificate file; required if the broker verifies its clients."
    )
    nats_key: Path | None = Field(None, description="Private key file of nats_certificate.")
    nats_replicas: int = Field(
        1, ge=1, le=5, description="Replicas of each JetStream stream that HBox creates: 3 in a cluster of three servers."
    )
    kubeconfig: str | None = Field(None, description="Path of a kubeconfig file; default: the pod's service account.")
    health_host: str = Field("127.0.0.1", description="Listen address of /healthz, /readyz and /metrics.")
    health_port: int = Field(
        0, ge=0, le=65535, description="Port of health_host; 0 = the service picks a free port and logs it."
    )
    metrics_token: str = Field(
        "",
        description="Bearer token of /metrics/queues and /metrics/cards, which contain names; empty: they are served on loopback only.",
    )
    log_level: str = Field(
        "info",
        description="Log level: debug, info, warning or error.",
        json_schema_extra={"pattern": "(?i)^(debug|info|warning|error)$"},  # so that the chart refuses what the validator does
    )
    log_format: LogFormat = Field(LogFormat.JSON, description="Log format: json for machines, text for people.")
    long_turn_ms: float = Field(
        100.0,
        ge=10,
        le=60_000,
        description="Milliseconds of processor time of a turn of the event loop above which the service logs the functions that ran in it.",
    )
    profile: str | None = Field(
        None, description="Existing folder for a CPU profile of the main thread, which the service writes when it stops."
    )
    instance: str = Field(
        f"{socket.gethostname()}-{os.getpid()}", description="Unique name of this process among the processes of its service."
    )

    leader_election: bool = Field(
        False, description="true if several processes of this service run: one leads, the others are standbys."
    )
    card_resources: str = Field(
        "",
        description="Resources with which a device plugin counts whole cards of one model: DOMAIN/NAME=MODEL, separated by commas.",
    )

    device_config: Path | None = Field(
        None,
        description="HAMi's device-config.yaml: resource names, factors, defaults, templates. All services must use the same file.",
    )

    time_scale: float = Field(
        1.0,
        ge=0.1,
        le=1000,
        description="Emulated clusters only: speed of the wall clock relative to the machine's clock, for all services.",
    )
    time_scale_since: float = Field(
        0.0,
        ge=0,
        description="Unix time in seconds at which the scaled clock equals the machine's clock; required with time_scale.",
    )

    lease_namespace: str = Field("hbox-system", description="Namespace of the leader-election Leases.")
    lease_duration_s: float = Field(
        15.0, ge=1, le=300, description="Seconds after the leader's last renewal at which a standby takes over."
    )

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.lower() not in ("debug", "info", "warning", "error"):
            raise ValueError("must be debug, info, warning or error")
        return value.lower()

    @field_validator("nats_url")
    @classmethod
    def _nats_address(cls, value: str) -> str:
        if not all(part.strip().startswith(("nats://", "tls://")) for part in value.split(",")):
            raise ValueError("must begin with nats:// or tls://")
        return value

    @model_validator(mode="after")
    def _one_clock(self) -> Self:
        if self.time_scale != 1.0 and not self.time_scale_since:
            raise ValueError(
                "HBOX_TIME_SCALE needs HBOX_TIME_SCALE_SINCE: all processes of an emulated cluster have one clock (`hbox up --time-scale`)"
            )
        return self

    @field_validator("card_resources")
    @classmethod
    def _known_cards(cls, value: str) -> str:
        try:
            parse_card_resources(value)
        except InvalidRequest as e:
            raise ValueError(str(e)) from e
        return value

    @property
    def nats_access(self) -> Access:
        """How this process gets into the broker."""
        return Access(seed=self.nats_seed, ca=self.nats_ca, certificate=self.nats_certificate, key=self.nats_key)

    @property
    def nats_user(self) -> str:
        """The broker's user that this process is."""
        return self.service


def help_text(settings: type[Settings], service: str) -> str:
    """How the service is started, and its settings with defaults."""
    lines = [
        f"usage: hbox-service {service}",
        "",
        "Runs the service until SIGTERM. Logs: standard error. Its settings are environment variables, or fields of the YAML file of HBOX_CONFIG,",
        "or files of the folder of HBOX_SECRETS (first the environment, then the folder, then the file):",
        "",
    ]
    for name, field in sorted(settings.model_fields.items()):
        default = field.get_default(call_default_factory=True)
        shown = "" if name == "instance" or default in (None, "", ()) else f" [{default}]"
        lines += [f"HBOX_{name.upper()}{shown}", f"    {field.description}"]
    return "\n".join(lines) + "\n"


def load(settings: type[S], service: str, environ: dict[str, str] | None = None) -> S:
    """The settings of `service`. Raises InvalidRequest that names the setting, where it came from, and what is allowed."""
    env = dict(os.environ if environ is None else environ)
    path = env.get("HBOX_CONFIG", "")
    from_file = _read(Path(path), settings, service) if path else {}
    folder = env.get("HBOX_SECRETS", "")
    secrets = _secrets(Path(folder), settings) if folder else {}
    given = {name for name in settings.model_fields if env.get(f"HBOX_{name.upper()}")}
    try:
        # Init arguments outrank the environment in pydantic-settings, so the file's values are handed in only where it is silent.
        return settings(**{name: value for name, value in (from_file | secrets).items() if name not in given})
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        where = f"HBOX_{name.upper()}" if name in given else f"{path}: {name}"
        allowed = settings.model_fields[name].description if name in settings.model_fields else ""
        if name in secrets and name not in given:
            reason = first["msg"].removeprefix("Value error, ")
            raise InvalidRequest(
                f"HBOX_SECRETS: {folder}/{name}: {reason}", hint=allowed or "see the service's README"
            ) from None
        raise InvalidRequest(
            f"{where} = {first.get('input')!r}: {first['msg'].removeprefix('Value error, ')}",
            hint=allowed or "see the service's README",
        ) from e


def current_secret(settings: Settings, name: str, environ: dict[str, str] | None = None) -> str:
    """The field `name` as its file in the mounted Secret has it now: the kubelet writes the file anew when the Secret changes. The value that `load` found,
    where there is no such file, where it cannot be read, and where the environment outranks it."""
    env = os.environ if environ is None else environ
    loaded = str(getattr(settings, name))
    folder = env.get("HBOX_SECRETS", "")
    if not folder or env.get(f"HBOX_{name.upper()}"):
        return loaded
    try:
        return (Path(folder) / name).read_text().strip() or loaded
    except (OSError, UnicodeError):
        return loaded


def _secrets(folder: Path, settings: type[Settings]) -> dict[str, str]:
    """The fields that have a file in `folder`, each without the space around it. A folder is shared by all services: other files are theirs."""
    try:
        if not folder.is_dir():
            raise InvalidRequest(f"HBOX_SECRETS: {folder} is no folder", hint="name the folder where the Secret is mounted")
        return {name: (folder / name).read_text().strip() for name in settings.model_fields if (folder / name).is_file()}
    except (OSError, UnicodeError) as e:
        raise InvalidRequest(
            f"HBOX_SECRETS: {folder} cannot be read: {type(e).__name__}", hint="may user 65532 read it?"
        ) from e


def _read(path: Path, settings: type[Settings], service: str) -> dict[str, Any]:
    try:
        content = settings_of(path)
    except InvalidRequest as e:
        raise InvalidRequest(f"HBOX_CONFIG: {e.message}", hint=e.hint) from e
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidRequest(f"{path}: the top level has to be a map of settings")
    own = content.get(service) or {}
    if not isinstance(own, dict):
        raise InvalidRequest(f"{path}: {service}: has to be a map of settings")
    shared = {key: value for key, value in content.items() if key not in _SECTIONS}
    common = Settings.model_fields
    for where, key, known in [("", k, common) for k in shared] + [(f"{service}: ", k, settings.model_fields) for k in own]:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), 1)
            raise InvalidRequest(f"{path}: {where}{key}: no such setting", hint=f"did you mean {near[0]}?" if near else "")
    return {**shared, **own}

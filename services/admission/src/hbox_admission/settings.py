"""Settings of the admission endpoint."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from hbox_common.errors import InvalidRequest
from hbox_common.model import SCHEDULER_NAME, scheduler_names
from hbox_common.runtime import Settings


class AdmissionSettings(Settings):
    service: ClassVar[str] = "admission"

    listen_host: str = Field("127.0.0.1", description="Listen address for the API server's admission requests.")
    listen_port: int = Field(
        0, ge=0, le=65535, description="Port of listen_host; 0 = the service picks a free port and logs it."
    )
    tls_certificate: Path = Field(
        Path("/etc/hbox/admission-tls/tls.crt"), description="Serving certificate file; reloaded when it changes."
    )
    tls_key: Path = Field(Path("/etc/hbox/admission-tls/tls.key"), description="Private key file of tls_certificate.")
    scheduler_names: str = Field(
        SCHEDULER_NAME,
        description="Scheduler names that HBox serves, separated by commas, as in job-controller; the webhook writes the first "
        "one into pods.",
    )
    force_overwrite_default_scheduler: bool = Field(
        True,
        description="true = pods with devices and schedulerName default-scheduler (the default of Kubernetes) get HBox's "
        "scheduler name.",
    )
    sizes_file: Path | None = Field(
        None, description="Catalogue of standard sizes, written by `hbox sizes --settle`; reloaded when it changes."
    )
    watch_cluster: bool = Field(
        False,
        description="true = watch namespaces and queues: labels of a namespace name the scheduler and queue of its new pods, and "
        "Queues and PodGroups are checked against the existing queues.",
    )
    linger_s: float = Field(
        3.0,
        ge=0,
        le=8,
        description="Seconds to serve requests after SIGTERM, until API servers stop sending them to this replica.",
    )

    @field_validator("scheduler_names")
    @classmethod
    def _known_names(cls, value: str) -> str:
        try:
            return ",".join(scheduler_names(value))
        except InvalidRequest as e:
            raise ValueError(str(e)) from e

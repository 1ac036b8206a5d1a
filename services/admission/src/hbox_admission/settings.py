"""Settings of the admission endpoint."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from hbox_common.errors import InvalidRequest
from hbox_common.model import SCHEDULER_NAME, scheduler_names
from hbox_common.runtime import Settings


class AdmissionSettings(Settings):
    service: ClassVar[str] = "admission"

    listen_host: str = Field("127.0.0.1", description="where the API server's requests are answered")
    listen_port: int = Field(0, ge=0, le=65535, description="its port; 0 picks a free one and logs it")
    tls_certificate: Path = Field(
        Path("/etc/hbox/admission-tls/tls.crt"), description="the certificate; read again when it changes"
    )
    tls_key: Path = Field(Path("/etc/hbox/admission-tls/tls.key"), description="its key")
    scheduler_names: str = Field(
        SCHEDULER_NAME,
        description="the names of schedulers that HBox answers to, joined by commas, as job-controller's: the first is written into pods",
    )
    force_overwrite_default_scheduler: bool = Field(
        True,
        description="whether pods with devices that name default-scheduler, which is everybody who names none, become HBox's",
    )
    sizes_file: Path | None = Field(
        None, description="the catalogue of standard sizes, settled by `hbox sizes --settle`; read again when it changes"
    )
    linger_s: float = Field(
        3.0,
        ge=0,
        le=8,
        description="for so long requests are answered after SIGTERM, until nobody sends any more to this replica",
    )

    @field_validator("scheduler_names")
    @classmethod
    def _known_names(cls, value: str) -> str:
        try:
            return ",".join(scheduler_names(value))
        except InvalidRequest as e:
            raise ValueError(str(e)) from e

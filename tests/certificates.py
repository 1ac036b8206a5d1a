"""An authority of the tests' own, and what it signed."""

import shutil
import subprocess
from pathlib import Path

OPENSSL = shutil.which("openssl")

NONE = "there is no openssl here to make certificates"


def make_certificates(folder: Path, *, broker: str = "IP:127.0.0.1", client: str = "IP:127.0.0.1") -> Path:
    """Into `folder`: ca.pem, and other.pem of an authority that signed nothing; broker.pem and client.pem for these names, each with its key."""

    def openssl(*words: str) -> None:
        subprocess.run([str(OPENSSL), *words], cwd=folder, check=True, capture_output=True, timeout=60)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2")
    for name, names in (("broker", broker), ("client", client)):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "names").write_text(f"subjectAltName={names}\n")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


def as_secret(certificates: Path, folder: Path) -> Path:
    """The broker's, by the names that a Secret of cert-manager has."""
    folder.mkdir()
    for file, name in (("broker.pem", "tls.crt"), ("broker.key", "tls.key"), ("ca.pem", "ca.crt")):
        shutil.copy(certificates / file, folder / name)
    return folder

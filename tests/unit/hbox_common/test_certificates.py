"""When certificates begin and end, as their bytes say."""

import re
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.x509 import Validity, in_pem, validity

from ...certificates import NONE, OPENSSL, make_certificates

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NONE)


def in_file(path: Path) -> list[Validity]:
    return in_pem(path.read_text())


def _said(path: Path, what: str) -> float:
    """By openssl."""
    words = [str(OPENSSL), "x509", "-in", str(path), "-noout", f"-{what}", "-dateopt", "iso_8601"]
    text = subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout
    return datetime.strptime(text.partition("=")[2].strip(), "%Y-%m-%d %H:%M:%SZ").replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize("name", ["ca", "client"])
def test_a_certificate_begins_and_ends_when_openssl_says_so(tmp_path: Path, name: str) -> None:
    path = make_certificates(tmp_path) / f"{name}.pem"
    [found] = in_file(path)
    assert (found.begins, found.ends) == (_said(path, "startdate"), _said(path, "enddate"))


def test_dates_beyond_2049_are_written_in_four_digits(tmp_path: Path) -> None:
    """RFC 5280 §4.1.2.5: UTCTime to 2049, GeneralizedTime from 2050 on."""
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=far"]
    far = tmp_path / "far.pem"
    subprocess.run(
        [str(OPENSSL), *words, "-keyout", str(tmp_path / "key"), "-out", str(far), "-days", "18000"],
        check=True,
        capture_output=True,
    )
    [found] = in_file(far)
    assert found.ends == _said(far, "enddate") > datetime(2050, 1, 1, tzinfo=UTC).timestamp()


def test_a_file_of_several_tells_of_each_in_its_order(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text((made / "client.pem").read_text() + (made / "ca.pem").read_text())
    assert in_file(both) == in_file(made / "client.pem") + in_file(made / "ca.pem")
    assert in_file(made / "client.key") == []


def test_what_is_no_certificate_is_said_to_be_none(tmp_path: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert((make_certificates(tmp_path) / "client.pem").read_text())
    for wrong in (b"", b"\x30", der[1:], der[:60], b"\x30\x84\xff\xff\xff\xff" + der, bytes(200)):
        with pytest.raises(InvalidRequest, match="no certificate"):
            validity(wrong)
    with pytest.raises(InvalidRequest, match="no certificate"):
        validity(re.sub(rb"(?<=Z\x17\x0d)\d{6}", b"991399", der))
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n")
    with pytest.raises(InvalidRequest, match="no certificate"):
        in_file(garbage)

"""Passwords and tokens of addresses are printed nowhere: errors, logs, health pages, commands."""

import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.redaction import redacted
from hbox_common.runtime.health import Condition
from hbox_common.runtime.settings import Settings, load
from hbox_common.store.engine import parse
from hbox_common.telemetry.logs import JsonFormatter, TextFormatter

SECRET = "h0nk-s3cret"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"nats://hbox:{SECRET}@nats:4222", "nats://***@nats:4222"),
        (f"no broker at nats://{SECRET}@a:1,nats://u:{SECRET}@b:2 answers", "no broker at nats://***@a:1,nats://***@b:2 answers"),
        (f"postgresql+psycopg://u:{SECRET}@x/y@host/db", "postgresql+psycopg://***@host/db"),
        (f"postgresql://u:a/{SECRET}@host/db", "postgresql://***@host/db"),
        (f"https://h/x?a=1&token={SECRET}&b=2", "https://h/x?a=1&token=***&b=2"),
        (f"https://h/?X-Amz-Signature={SECRET}", "https://h/?X-Amz-Signature=***"),
        (f"postgresql://h/db?sslpassword={SECRET}&user=x", "postgresql://h/db?sslpassword=***&user=x"),
        ("http://host/a@b?c=d and mail@x", "http://host/a@b?c=d and mail@x"),
        ("write it like postgresql+psycopg://user:password@host/database", "write it like postgresql+psycopg://user:password@host/database"),
    ],
)  # fmt: skip
def test_what_gives_access_is_left_out(text: str, shown: str) -> None:
    assert redacted(text) == shown


@given(
    st.text(alphabet="abz019:@%!$&()*+,;=._~-", min_size=1, max_size=30),
    st.sampled_from(["nats", "postgresql+psycopg", "https"]),
)
def test_no_password_of_whatever_characters_is_left(password: str, scheme: str) -> None:
    assert redacted(f"x {scheme}://hbox:{password}{SECRET}@host:1/db y") == f"x {scheme}://***@host:1/db y"


def test_errors_settings_logs_and_health_pages_hold_none(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"nats://u:{SECRET}@h:1"
    said = [str(Unavailable(f"{url} does not answer", hint=f"is it at {url}?"))]
    condition = Condition("bus")
    condition.bad(f"{url}: away")
    said.append(condition.message)
    monkeypatch.setenv("HBOX_NATS_URL", f"http://u:{SECRET}@h")
    with pytest.raises(InvalidRequest) as wrong:
        load(Settings, "binder")
    said.append(str(wrong.value))
    with pytest.raises(InvalidRequest) as unknown:
        parse(f"mysql://u:{SECRET}@h/d")
    said.append(str(unknown.value))
    record = logging.makeLogRecord({"msg": f"{url} is away", "levelname": "INFO", "name": "n", "address": url})
    try:
        raise ValueError(url)
    except ValueError:
        record.exc_info = sys.exc_info()
    said += [formatter.format(record) for formatter in (TextFormatter("s"), JsonFormatter("s"))]
    assert [text for text in said if SECRET in text] == []
    assert all("***@h" in text for text in said)


def test_a_service_that_cannot_start_prints_none() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hbox_binder"],
        env={"HBOX_NATS_URL": f"http://u:{SECRET}@h", "PATH": ""},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    assert SECRET not in done.stdout + done.stderr
    assert "***@h" in done.stderr

"""What is printed arrives whole, at whatever pace it is read."""

import os
import subprocess
import sys
import time

PRINTS = """
from unittest import mock
from hbox_cli import __main__ as command
from hbox_cli.output import Form, Output
def main(**_):
    Output(Form.JSON).rows("Node", [{"name": "n" * 1100, "n": n} for n in range(2000)], [])
with mock.patch.object(command.cli, "main", main):
    command.main()
"""


def test_two_mebibytes_arrive_whole_through_a_pipe_that_is_not_blocking_and_read_slowly() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)  # as a parent's event loop leaves it, when both hold the same open file
    with subprocess.Popen([sys.executable, "-c", PRINTS], stdout=writes, stderr=subprocess.PIPE) as process:
        os.close(writes)
        got = b""
        while chunk := os.read(reads, 65_536):
            got += chunk
            time.sleep(0.002)
        os.close(reads)
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert len(got) > 2**21
    assert got.endswith(b"]\n}\n")


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    with subprocess.Popen([sys.executable, "-c", PRINTS], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(100)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_no_password_of_an_address_is_shown() -> None:
    prints = "from hbox_cli.stdio import take_over; take_over(); print('at postgresql://me:secret@here/x')"
    done = subprocess.run([sys.executable, "-c", prints], capture_output=True, text=True, check=True)
    assert "here/x" in done.stdout
    assert "secret" not in done.stdout


def test_what_a_terminal_has_no_sign_for_is_no_reason_to_fail() -> None:
    prints = r"from hbox_cli.stdio import take_over; take_over(); print('bars \u2588, caf\u00e9, \udcff.db')"
    for encoding, shown in (
        ("latin-1", b"bars \\u2588, caf\xe9"),
        ("ascii", b"bars \\u2588, caf\\xe9"),
        ("utf-8", "bars \u2588, caf\u00e9".encode()),
    ):
        env = os.environ | {"PYTHONIOENCODING": encoding}
        done = subprocess.run([sys.executable, "-c", prints], capture_output=True, env=env, check=True)
        assert done.stdout.startswith(shown), encoding

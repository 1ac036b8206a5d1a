"""What short commands do not import: the message models and the broker's client take ten times as long as `hbox --help`."""

import subprocess
import sys


def test_the_state_folder_is_read_without_the_model() -> None:
    code = "import sys, hbox_cli.platform.layout; sys.exit('hbox_common.model' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0

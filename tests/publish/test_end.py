"""However `run` is ended, no process of it stays. Linux only: processes are found in /proc."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from tests.publish.test_batch import MODEL, notebook

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

# Whoever runs the tests in the background hands on an interrupt that is ignored; a user does not.
SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from scaled_idempotence import cli
from scaled_idempotence.publish import notebooks
folder = Path(sys.argv.pop(1))
notebooks.notebooks_folder = lambda: folder
cli.main()
"""


def marked(marker):
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_command(tmp_path, number):
    folder, out = tmp_path / "notebooks", tmp_path / "out"
    folder.mkdir()
    source = "import time; from pathlib import Path\nPath('begun-{}').touch(); time.sleep(300)"
    for name in ("01_one", "02_two"):
        nbformat.write(notebook(source.format(name)), folder / f"{name}.ipynb")
    marker = f"SCALED_IDEMPOTENCE_TEST={tmp_path}"
    command = [sys.executable, "-c", SCRIPT, folder, "run", MODEL, "--jobs", "2", "--out", out]
    process = subprocess.Popen(
        list(map(str, command)),
        env=os.environ | dict([marker.split("=", 1)]),
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 90
        while len(list(out.glob("begun-*"))) < 2 and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.1)
        assert len(marked(marker)) >= 5  # the command, two workers, two kernels
        process.send_signal(number)
        deadline = time.monotonic() + 5
        while marked(marker) and time.monotonic() < deadline:
            process.poll()
            time.sleep(0.1)
        assert marked(marker) == []
        expected = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
        assert process.wait(1) == expected.get(number, -number)
        assert not list(out.glob("executed/**/*.*"))
    finally:
        for pid in marked(marker):
            os.kill(pid, signal.SIGKILL)
        process.wait()

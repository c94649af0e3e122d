"""CI runs what the README says."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

README = """
## Run it

Text.

```sh
echo ran >> log
```

```sh
echo never >> log
```

## Test it

```sh
echo tested >> log; {test}
```
"""


@pytest.fixture
def clone(tmp_path: Path, root: Path) -> Path:
    target = tmp_path / "a clone"
    shutil.copytree(root / ".ci", target / ".ci")
    return target


def ci(clone: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(clone / ".ci" / "run")]
    return subprocess.run(command, cwd=os.sep, capture_output=True, text=True, timeout=30, check=False)


def test_the_readmes_first_commands_run_in_the_clone_tests_first(clone: Path) -> None:
    (clone / "README.md").write_text(README.format(test="true"))
    assert ci(clone).returncode == 0
    assert (clone / "log").read_text() == "tested\nran\n"


def test_a_failure_is_kept_and_the_rest_runs(clone: Path) -> None:
    (clone / "README.md").write_text(README.format(test="false"))
    assert ci(clone).returncode == 1
    assert (clone / "log").read_text() == "tested\nran\n"


def test_a_missing_section_is_a_failure(clone: Path) -> None:
    (clone / "README.md").write_text("## Run it\n")
    done = ci(clone)
    assert done.returncode == 1
    assert 'README.md has no shell block under "## Test it"' in done.stderr

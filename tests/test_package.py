"""The package as it is published: an sdist that builds, a wheel that installs and works without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys, flit_core.buildapi as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def run(*command: object, cwd: Path) -> str:
    """Run a command and give what it printed; what it said is shown if it fails."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    name = run(sys.executable, "-c", BUILD, "sdist", folder, cwd=ROOT)
    with tarfile.open(folder / name) as archive:
        archive.extractall(folder, filter="data")
    return folder / name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that has the wheel, and of everything else only the dependencies."""
    folder = tmp_path_factory.mktemp("clean")
    wheel = folder / run(sys.executable, "-c", BUILD, "wheel", folder, cwd=sdist)
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    base = getattr(sys, "_base_executable", sys.executable)
    run(base, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_the_sdist_holds_what_a_developer_needs(sdist: Path) -> None:
    wanted = ["CHANGELOG.md", "LICENSE", "README.md", "docs", "example_dags", "requirements", "tests", "airflow_tds"]

    assert [name for name in wanted if not (sdist / name).exists()] == []


def test_the_wheel_works_without_the_repository(installed: Path, tmp_path: Path) -> None:
    script = "import airflow_tds.operators, airflow_tds.local as l; l.Service; print(airflow_tds.__file__)"

    assert str(installed.parents[1]) in run(installed, "-W", "ignore", "-c", script, cwd=tmp_path)


def test_the_wheel_announces_the_provider(installed: Path, tmp_path: Path) -> None:
    script = (
        "from importlib.metadata import entry_points\n"
        "(one,) = [e for e in entry_points(group='apache_airflow_provider') if e.dist.name == 'airflow-tds']\n"
        "print(one.load()()['package-name'])"
    )

    assert run(installed, "-c", script, cwd=tmp_path) == "airflow-tds"


def test_the_wheel_has_no_file_beside_the_package_and_its_commands(installed: Path, tmp_path: Path) -> None:
    script = (
        "from importlib.metadata import files\n"
        "names = [str(f) for f in files('airflow-tds')]\n"
        "print(sorted({n.split('/')[0] for n in names if '/bin/airflow-tds' not in n}))"
    )
    version = run(installed, "-c", "import airflow_tds; print(airflow_tds.__version__)", cwd=tmp_path)

    assert run(installed, "-c", script, cwd=tmp_path) == str(["airflow_tds", f"airflow_tds-{version}.dist-info"])


def test_the_wheel_is_typed(installed: Path, tmp_path: Path) -> None:
    script = "import airflow_tds, pathlib; print((pathlib.Path(airflow_tds.__file__).parent / 'py.typed').exists())"

    assert run(installed, "-c", script, cwd=tmp_path) == "True"

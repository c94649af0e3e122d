"""What every test needs: an Airflow home of its own, set before anything imports Airflow."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[name]
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-tds-tests-")
atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

"""The commands that Airflow adds to its own, from 3.2 on: `airflow tds doctor`. Below, there is `airflow-tds doctor`.

Imported by every `airflow` command, so it names the options and loads nothing; what a command does is loaded when it
is called.
"""

from __future__ import annotations

from typing import Any

__all__ = ["commands"]


def commands() -> list[Any]:
    """Describe the commands to Airflow."""
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand, lazy_load_command

    from airflow_tds.doctor.options import OPTIONS

    doctor = ActionCommand(
        name="doctor",
        help="Examine a connection to the Table Data Service end to end",
        func=lazy_load_command("airflow_tds.doctor.command.from_airflow"),
        args=tuple(Arg(flags=flags, **told) for flags, told in OPTIONS),  # type: ignore[no-untyped-call]  # Airflow's
    )
    return [GroupCommand(name="tds", help="Tools for the Table Data Service", subcommands=(doctor,))]

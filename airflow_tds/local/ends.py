"""Who waits for a job to end: told once it is final, or that the service stops first."""

from __future__ import annotations

from concurrent.futures import Future

from airflow_tds.local.directory import StoreUnavailable
from airflow_tds.local.records import Job

__all__ = ["Ends"]


class Ends:
    """What will hold the ends of jobs; used under the store's lock."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Future[Job]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def of(self, job: Job) -> Future[Job]:
        """Give what will hold a job once it is final."""
        future: Future[Job] = Future()
        self._waiting.setdefault(job.job_id, []).append(future)
        self.tell(job)
        return future

    def tell(self, job: Job) -> None:
        """Tell who waits for a job, if it is final."""
        for future in self._waiting.pop(job.job_id, ()) if job.final else ():
            if future.set_running_or_notify_cancel():
                future.set_result(job)

    def waited_for(self) -> list[str]:
        """Give the ids of jobs that somebody waits for."""
        return list(self._waiting)

    def stop(self) -> None:
        """Tell everybody that the service stops first; the jobs go on at the next start."""
        waiting = [future for futures in self._waiting.values() for future in futures]
        self._waiting.clear()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(StoreUnavailable("the service stops; the job goes on when it starts again"))

"""A caller who speaks plain HTTP to a service: the service is tested without the project's client."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

_PATIENCE = 30.0


@dataclass
class Caller:
    """Speaks to a service at a URL as its users do."""

    url: str
    token: str

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=_PATIENCE)
        self.store = httpx.Client(timeout=_PATIENCE)

    def close(self) -> None:
        self.http.close()
        self.store.close()

    def create(self, table_id: str) -> str:
        assert self.http.post("/admin/tables", json={"table_id": table_id}).status_code == 201
        return table_id

    def info(self, table_id: str) -> dict[str, Any]:
        reply = self.http.get(f"/tables/{table_id}/data/info")
        assert reply.status_code == 200, reply.text
        answer: dict[str, Any] = reply.json()
        return answer

    def initiate(self, kind: str, table_id: str, data_format: str = "csv", **body: Any) -> httpx.Response:
        method, path = ("PATCH", "data") if kind == "append" else ("POST", f"data/{kind}")
        return self.http.request(method, f"/tables/{table_id}/{path}", json={"format": data_format, **body})

    def put(self, url: str, data: bytes) -> httpx.Response:
        return self.store.put(url, content=data)

    def submit(self, kind: str, table_id: str, data: bytes, data_format: str = "csv", **body: Any) -> str:
        """Send a write's data, and give its job."""
        reply = self.initiate(kind, table_id, data_format, **body)
        assert reply.status_code == 200, reply.text
        assert self.put(reply.json()["upload_url"], data).status_code == 200
        job_id: str = reply.json()["job_id"]
        return job_id

    def write(self, kind: str, table_id: str, data: bytes, data_format: str = "csv", **body: Any) -> dict[str, Any]:
        """Write, and give the job's last record."""
        return self.settled(self.submit(kind, table_id, data, data_format, **body))

    def job(self, job_id: str) -> dict[str, Any]:
        reply = self.http.get(f"/data/jobs/{job_id}")
        assert reply.status_code == 200, reply.text
        record: dict[str, Any] = reply.json()
        return record

    def settled(self, job_id: str) -> dict[str, Any]:
        """Ask for a job until it is final; each question is a round trip, so nothing sleeps."""
        deadline = time.monotonic() + _PATIENCE
        while (record := self.job(job_id))["status"] not in ("COMPLETED", "FAILED"):
            assert time.monotonic() < deadline, f"job {job_id} did not end: {record}"
        return record

    def truncate(self, table_id: str) -> None:
        reply = self.http.post(f"/tables/{table_id}/data/truncate")
        assert (reply.status_code, reply.content) == (202, b"")
        deadline = time.monotonic() + _PATIENCE
        while self.info(table_id)["row_count"] and time.monotonic() < deadline:
            pass

    def ask(self, **query: Any) -> httpx.Response:
        """Start a query; when it is accepted, follow it to its result."""
        reply = self.http.post("/data/queries", json=query)
        if reply.status_code != 202:
            return reply
        job_id = reply.json()["job_id"]
        self.settled(job_id)
        ready = self.http.get(f"/data/query/{job_id}")
        return self.store.get(ready.headers["location"]) if ready.status_code == 307 else ready

    def rows(self, table_id: str, **query: Any) -> list[dict[str, Any]]:
        reply = self.ask(table_id=table_id, format="json", **query)
        assert reply.status_code == 200, reply.text
        found: list[dict[str, Any]] = reply.json()
        return found

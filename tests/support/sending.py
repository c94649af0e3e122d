"""Requests through a runtime of either face, or a lane of either kind, opened and closed for them."""

from __future__ import annotations

import asyncio

from airflow_tds.client.access import Access
from airflow_tds.client.http.lanes import Lane, Over
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.runtime import AsyncRuntime, BlockingRuntime, finish

__all__ = ["send_aiohttp", "send_async", "send_blocking", "send_httpx"]


def send_blocking(access: Access, *requests: Request) -> list[Reply]:
    world = BlockingRuntime(access)
    try:
        return [finish(world.send(request)) for request in requests]
    finally:
        world.close()


def send_async(access: Access, *requests: Request) -> list[Reply]:
    async def work() -> list[Reply]:
        world = AsyncRuntime(access)
        try:
            return [await world.send(request) for request in requests]
        finally:
            await world.close()

    return asyncio.run(work())


def send_httpx(access: Access, *requests: Request) -> list[Reply]:
    return _send_lane(access, "httpx", requests)


def send_aiohttp(access: Access, *requests: Request) -> list[Reply]:
    return _send_lane(access, "aiohttp", requests)


def _send_lane(access: Access, over: Over, requests: tuple[Request, ...]) -> list[Reply]:
    async def work() -> list[Reply]:
        lane = Lane(access, access.ssl_context(), over)
        try:
            return [await lane.read(request) for request in requests]
        finally:
            await lane.close()

    return asyncio.run(work())

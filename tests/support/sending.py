"""Requests through a runtime of either face, opened and closed for them."""

from __future__ import annotations

import asyncio

from airflow_tds.client.access import Access
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.runtime import AsyncRuntime, BlockingRuntime, finish

__all__ = ["send_async", "send_blocking"]


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

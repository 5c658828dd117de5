"""Runs a processor or the relay of an outbox in the background of an application."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from aioprod.probes import AsgiApp, Probed, answer, asgi_app
from aioprod.public_module import Uncopyable

if TYPE_CHECKING:
    from aiohttp import web


class Background(Uncopyable, ABC):
    """Starts and stops with an ``async with`` block, or with an application."""

    @abstractmethod
    async def start(self) -> None:
        """Run in the background."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop, and raise the error that ended it."""

    @abstractmethod
    def _probed(self) -> Probed:
        """Return what probes report."""

    async def __aenter__(self) -> Self:
        """Start, as :meth:`start` does."""
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Stop, as :meth:`stop` does. An error of the block takes precedence over that of the
        background.
        """
        try:
            await self.stop()
        except Exception:
            if error is None:
                raise

    @asynccontextmanager
    async def _in_background(self, app: object) -> AsyncIterator[None]:
        async with self:
            yield

    @property
    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """The lifespan of a FastAPI or Starlette application: ``FastAPI(lifespan=p.lifespan)``."""
        return self._in_background

    async def cleanup_ctx(self, app: object) -> AsyncIterator[None]:
        """Run with an aiohttp application: ``app.cleanup_ctx.append(p.cleanup_ctx)``."""
        async with self:
            yield

    @property
    def health_app(self) -> AsgiApp:
        """An ASGI application for probes, such as ``app.mount("/kafka", p.health_app)``.

        It responds with 200 or 503, and the state as JSON. Paths that end with ``/ready`` report
        ``ready``, all others ``healthy``.
        """
        return asgi_app(self._probed)

    async def aiohttp_health(self, request: web.Request) -> web.Response:
        """Answer probes in an aiohttp application, as :attr:`health_app` does:
        ``app.router.add_get("/kafka/{probe}", p.aiohttp_health)``.
        """
        from aiohttp import web

        status, body = answer(request.path, self._probed())
        headers = {"cache-control": "no-store"}
        return web.Response(
            status=status, body=body, content_type="application/json", headers=headers
        )

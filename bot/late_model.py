"""A model whose adapter is still being imported.

`import anthropic` takes 1.5 s and would decide how soon a restarted worker takes its first step. So the
program starts with a `LateModel`: the import and the construction run in a thread, everything else goes on, and
only the first request waits for what is left of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.ports import Model, ModelAnswer, ModelRequest, StreamProgress


class LateModel:
    """A `core.ports.Model` that `load` makes in a thread, from the moment that `start` is called."""

    def __init__(self, load: Callable[[], Model]) -> None:
        self._load = load
        self._loading: asyncio.Future[Model] | None = None

    def start(self) -> None:
        """Begin loading now. Calling it again does nothing."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(self._load))
            self._loading.add_done_callback(_seen)

    async def ready(self) -> Model:
        """The loaded model; raises what `load` raised. Cancelling the caller does not end the loading."""
        self.start()
        assert self._loading is not None
        return await asyncio.shield(self._loading)

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        """As the loaded model does it, once it is there."""
        return await (await self.ready()).stream(request, progress)

    async def close(self) -> None:
        """Close the loaded model, if it was loaded and can be closed."""
        if self._loading is None:
            return
        await asyncio.wait([self._loading])
        if not self._loading.cancelled() and self._loading.exception() is None:
            close = getattr(self._loading.result(), "close", None)
            if close is not None:
                await close()


def _seen(loading: asyncio.Future[Model]) -> None:
    """A failure is told by the first request; without one it is nobody's business at the end of the program."""
    if not loading.cancelled():
        loading.exception()

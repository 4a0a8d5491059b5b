"""Sends metrics to the dashboards, each from its own thread, so that training never waits.

A dashboard that fails is switched off with one message. Nothing is lost: metrics.jsonl has all
values, and `sesame sync` can send them to wandb later.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from queue import SimpleQueue
from typing import Any

from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.dashboards import close_dashboard, open_dashboard
from pipeline.tracking.training import Row, Training, by_step
from pipeline.tracking.wandb_settings import import_wandb

CLOSE_SECONDS = 90.0  # longer than the dashboards' own timeouts; then their threads are abandoned


class Tracker:
    """The dashboards of one launch that starts at `step`. Used on rank 0 only."""

    def __init__(
        self, config: TrackingConfig, training: Training, step: int, say: Callable[[str], None]
    ) -> None:
        self._followers = [_Follower(name, config, training, step, say) for name in config.active]
        if "wandb" in config.active:
            # Imported here and not in a thread: loader workers are forked, and a fork during an
            # import would copy a held import lock.
            with suppress(Exception):  # the follower fails in the same way and reports it
                import_wandb()
        for follower in self._followers:
            follower.start()

    def log(self, line: dict[str, Any]) -> None:
        """Queue a line, which must have a `step`; returns at once."""
        for follower in self._followers:
            follower.tell(line)

    def close(self) -> None:
        """Send the end and wait for each dashboard, at most `CLOSE_SECONDS` each."""
        for follower in self._followers:
            follower.tell(None)
        for follower in self._followers:
            follower.join(CLOSE_SECONDS)


class _Follower(threading.Thread):
    """Sends one dashboard all rows from before this launch, and then every new line."""

    def __init__(
        self,
        name: str,
        config: TrackingConfig,
        training: Training,
        step: int,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name=f"tracking-{name}", daemon=True)
        self._dashboard, self._config, self._training = name, config, training
        self._step, self._say = step, say
        self._lines: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def tell(self, line: dict[str, Any] | None) -> None:
        """Queue a line, or None for the end."""
        if self.is_alive():
            self._lines.put(line)

    def run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # no failure of a dashboard may stop training
            reason = str(error).strip().partition("\n")[0]
            later = f"; later: sesame sync {self._training.name}"
            self._say(
                f"{self._dashboard} is off from here on ({type(error).__name__}: {reason}); "
                "training goes on, and metrics.jsonl has everything"
                f"{later if self._dashboard == 'wandb' else ''}"
            )

    def _follow(self) -> None:
        logger = open_dashboard(self._dashboard, self._config, self._training)
        new = self._covered(by_step(iter(self._lines.get, None)))
        for step, numbers in chain(self._training.rows(until=self._step), new):
            logger.log_metrics(numbers, step)
        close_dashboard(logger, self._training)

    def _covered(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield rows once a checkpoint covers them; those that none covers are left out.

        A rollback repeats the steps after a checkpoint, and a server keeps what it was sent.
        """
        waiting: deque[Row] = deque()
        for row in rows:
            waiting.append(row)
            yield from self._release(waiting)
        yield from self._release(waiting)

    def _release(self, waiting: deque[Row]) -> Iterator[Row]:
        saved = self._training.saved_step()
        while waiting and waiting[0][0] <= saved:
            yield waiting.popleft()

"""A wandb server on this machine, for tests of dashboards."""

from collections.abc import Iterator

import pytest
import wandb

from tests.pipeline.wandb_server import WandbServer, wandb_server


@pytest.fixture
def fresh_wandb() -> Iterator[None]:
    """wandb as a new process has it: it reads its variables once."""
    wandb.teardown()
    yield
    wandb.teardown()


@pytest.fixture
def server(fresh_wandb: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """A running server that wandb will use."""
    with wandb_server() as running:
        monkeypatch.setenv("WANDB_BASE_URL", running.address)
        monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
        yield running

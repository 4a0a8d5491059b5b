"""Uploads one pretraining to wandb as one run, rebuilt from metrics.jsonl.

wandb cannot resume an offline run, and its rows from before a rollback are no longer valid. The run
is therefore written again from the start, under the same id, and sent with `wandb sync`. A repeated
sync replaces the run on the server. Reads the training's folder, and the exports and scores made
from it; writes `.tracking/sync`. Try: sesame sync demo
"""

import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from data_prep.errors import SesameError, UsageError
from pipeline.store.outputs import Output
from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.lineage import artifacts, results_of
from pipeline.tracking.training import Training
from pipeline.tracking.wandb_settings import import_wandb

ANSWER_SECONDS = 15.0
AGAIN = "nothing is lost; run the same command again"

Summarise = Callable[[list[Path]], dict[str, float]]


def sync(training: Training, config: TrackingConfig, summarise: Summarise) -> str:
    """Upload a pretraining with its exports and scores, and every fine-tuning of it as a run of its
    own; return the address of the pretraining's page.

    `summarise` returns summary values by name for a list of `scores.json` files. Raises
    `UsageError` without a key, `SesameError` if the server does not answer or refuses the run.
    """
    # WANDB_MODE is meant for trainings; a sync is always online.
    os.environ.pop("WANDB_MODE", None)
    address = find_server()
    results = results_of(training.store, training.output)
    page = upload(rebuild(training, config, summarise, results), address)
    for output in results:
        tuning = Training(training.name, output)
        if output.stage in ("finetune", "layers") and tuning.journals[0].exists():
            named = replace(config, label=_label(output), group=config.group or training.name)
            upload(rebuild(tuning, named, summarise, []), address)
    return page


def _label(output: Output) -> str:
    config = output.request()["config"]
    last = f"seed={config['finetune']['seed']}" if output.stage == "finetune" else output.stage
    return f"{config['task']['name']}, {last}"


def find_server() -> str:
    """Return the address of wandb's server, after checking that there is a key and it answers."""
    wandb = import_wandb()
    address = str(wandb.setup().settings.base_url)
    try:
        is_known = wandb.login(prompt=False, verify=False)
    except wandb.errors.AuthenticationError as error:
        raise UsageError(f"the key for {address} is not valid: {error}") from error
    if not is_known:
        raise UsageError(f"there is no key for {address}; run wandb login, or set WANDB_API_KEY")
    try:
        urllib.request.urlopen(address, timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError:
        return address  # an HTTP error is an answer too
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise SesameError(f"{address} does not answer ({reason}); {AGAIN}") from error
    return address


def rebuild(
    training: Training, config: TrackingConfig, summarise: Summarise, results: list[Output]
) -> Path:
    """Write a whole run, with the results made from it, in wandb's offline format; return its
    folder."""
    from pipeline.tracking.dashboards import open_wandb

    folder = training.folder / "sync"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = [output.path / "scores.json" for output in results if output.stage == "finetune"]
    scores = summarise(files)
    run = open_wandb(config, training, "offline", folder)
    for step, numbers in training.rows():
        run.log_metrics(numbers, step)
    for each in (training.output, *results):
        for artifact in artifacts(each):
            run.make(artifact)
    run.experiment.summary.update(scores)
    run.finish()
    (made,) = folder.glob("wandb/offline-run-*")
    return made


def upload(made: Path, address: str) -> str:
    """Send an offline run with `wandb sync`; return the address of its page.

    wandb writes a `*.synced` file once everything has arrived.
    """
    environment = {key: value for key, value in os.environ.items() if key != "WANDB_SILENT"}
    done = subprocess.run(
        [sys.executable, "-m", "wandb", "sync", str(made)],
        cwd=made.parents[1],  # wandb writes its log here
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode or not list(made.glob("*.synced")):
        said = (done.stdout.strip().splitlines() or ["without a message"])[-1]
        raise SesameError(f"{address} did not take the run ({said}); {AGAIN}")
    seen = re.search(r"View run .* at (\S+)", done.stdout)
    return seen.group(1) if seen else address

"""Find fine-tuned models: `<run>/<task>`, the beginning of a fingerprint, or a folder."""

from pathlib import Path

from data_prep.errors import UsageError
from pipeline.store.content import Checksums
from pipeline.store.outputs import Output, Store
from pipeline.store.runs import FINGERPRINT, Runs, similar_names
from pipeline.store.verify import refuse_damage

STAGE = "model"
FILE = "finetuned.json"  # every fine-tuned model has it


def find_model(asked: str, text: str, store: Store) -> Path:
    """Return the folder of the model that `text` refers to; `asked` is the user's input.

    Raises UsageError if there is none, or several, and Damaged if a model of the store is not what
    its manifest says.
    """
    if (Path(text).expanduser() / FILE).is_file():
        return Path(text).expanduser()
    found = models_of(text, store)
    if len(found) > 1:
        choices = ", ".join(_described(output) for output in found)
        raise UsageError(f"{asked}: names {len(found)} models; give one of {choices}")
    if not found and Path(text).expanduser().is_dir():
        raise UsageError(
            f"{asked}: the folder has no {FILE}, so it is no fine-tuned model; sesame finetune "
            f"encoder={text} task=… makes one"
        )
    if not found:
        raise UsageError(f"{asked}: there is no such model{_hint(text, store)}")
    refuse_damage(found[0], Checksums(store.root))
    return found[0].path


def models_of(text: str, store: Store) -> list[Output]:
    """Return the finished models that `<run>`, `<run>/<task>` or a fingerprint's beginning name."""
    run, _, task = text.partition("/")
    runs = Runs(store)
    if run in runs.names():
        outputs = runs.outputs(run, STAGE, True) or runs.outputs(run, STAGE, False)
        made = [output for output in outputs if output.is_done]
        return [output for output in made if task in ("", _task(output))]
    if not FINGERPRINT.fullmatch(text):
        return []
    return [
        output
        for output in store.outputs(STAGE)
        if output.is_done and output.fingerprint.startswith(text)
    ]


def model_names(run: str, store: Store) -> list[str]:
    """Return the references of a run's models, `<run>/<task>`."""
    return sorted({f"{run}/{_task(output)}" for output in models_of(run, store)})


def _task(output: Output) -> str:
    return str(output.manifest()["counts"]["task"])


def _described(output: Output) -> str:
    counts = output.manifest()["counts"]
    return f"{output.fingerprint} ({counts['task']}, {counts['encoder']})"


def _hint(text: str, store: Store) -> str:
    run = text.partition("/")[0]
    names = Runs(store).names()
    if run not in names:
        return f"; give <run>/<task>, a fingerprint or a folder{similar_names(run, names)}"
    made = model_names(run, store)
    if made:
        return f"; the models of this run are {', '.join(made)}"
    return f"; this run has none yet: sesame finetune name={run} task=… keeps one"

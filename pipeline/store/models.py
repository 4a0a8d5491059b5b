"""Find fine-tuned models: `<run>/<task>`, the beginning of a fingerprint, or a folder.

`<run>/<task>` names a model while the run has one of this task. After a second fine-tuning with
other settings it names none of them: a reference must not begin to mean another model.
"""

from pathlib import Path

from data_prep.errors import UsageError
from pipeline.store.content import Checksums
from pipeline.store.outputs import Output, Store, canonical
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
        choices = ", ".join(_described(output, _differing(found, store)) for output in found)
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
    """Return the references of a run's models: `<run>/<task>`, with fingerprints if it has several
    models of a task."""
    made: dict[str, list[str]] = {}
    for output in models_of(run, store):
        made.setdefault(f"{run}/{_task(output)}", []).append(output.fingerprint)
    return [
        name if len(own) == 1 else f"{name} ({len(own)} models: {', '.join(sorted(own))})"
        for name, own in sorted(made.items())
    ]


def model_reference(run: str, output: Output, store: Store) -> str:
    """Return the shortest reference that names this model of a run and no other."""
    name = f"{run}/{_task(output)}"
    return name if models_of(name, store) == [output] else output.fingerprint


def _task(output: Output) -> str:
    return str(output.manifest()["counts"]["task"])


def _described(output: Output, differing: dict[str, dict[str, str]]) -> str:
    """Return the fingerprint of a model and what tells it from others."""
    counts = output.manifest()["counts"]
    seeds, seed = counts["seeds"], counts["seed"]
    score = counts["dev_scores"][seeds.index(seed)]
    facts = [
        counts["task"],
        counts["encoder"],
        f"seed {seed}" if len(seeds) == 1 else f"seed {seed}, the best of {len(seeds)}",
        *(f"{key}={value}" for key, value in differing[output.fingerprint].items()),
        f"development {counts['metric']} {100 * score:.1f}",
    ]
    return f"{output.fingerprint} ({', '.join(facts)})"


def _differing(models: list[Output], store: Store) -> dict[str, dict[str, str]]:
    """Return by fingerprint the settings in which models of one task differ, but for the seed."""
    settings = {output.fingerprint: _settings(output, store) for output in models}
    tasks = {output.fingerprint: _task(output) for output in models}
    return {
        one: {
            key: value
            for key, value in own.items()
            if any(other.get(key) != value for name, other in settings.items()
                   if tasks[name] == tasks[one])
        }
        for one, own in settings.items()
    }  # fmt: skip


def _settings(output: Output, store: Store) -> dict[str, str]:
    """Return the settings of a model's fine-tuning, by key; none if the fine-tuning is gone."""
    upstream = output.manifest()["upstream"]
    tuned = [each for role, each in sorted(upstream.items()) if role.startswith("finetune_")]
    made = store.from_reference(tuned[0]) if tuned else None
    if made is None or not made.is_done:
        return {}
    return {
        f"{section}.{key}": canonical(value)
        for section, keys in made.manifest()["config"].items()
        if isinstance(keys, dict)
        for key, value in keys.items()
        if key != "seed"
    }


def _hint(text: str, store: Store) -> str:
    run = text.partition("/")[0]
    names = Runs(store).names()
    if run not in names:
        return f"; give <run>/<task>, a fingerprint or a folder{similar_names(run, names)}"
    made = model_names(run, store)
    if made:
        return f"; the models of this run are {', '.join(made)}"
    return f"; this run has none yet: sesame finetune name={run} task=… keeps one"

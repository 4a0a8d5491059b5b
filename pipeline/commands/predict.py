"""`sesame predict` and `sesame evaluate`: use a fine-tuned model on other files."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich import print as show
from rich.markup import escape
from rich.table import Table

from data_prep.errors import UsageError
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, take_own
from pipeline.commands.store import open_store
from pipeline.config.compose import compose_config
from pipeline.store.lease import lease
from pipeline.store.models import find_model
from pipeline.tasks.config import WITH_DOCUMENTS, TaskConfig
from pipeline.tasks.splits import read_test

OF_ONE_OR_TWO_TEXTS = ("classify", "multilabel", "regress")  # kinds of tasks; see task.text_b


def predict(arguments: Arguments) -> None:
    """Answer every item of a file, in order, or every text of a folder."""
    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, {"model": "", "input": "", "output": ""})
    store = open_store(replace(arguments, overrides=overrides))
    _refuse_without_effect("predict", overrides, ("experiment=", "paths."))
    if not own["model"] or not own["input"]:
        raise UsageError("name a model and a file: model=<run>/<task> input=<file>")
    folder = find_model(f"model={own['model']}", own["model"], store)

    from pipeline.inference.folders import predict_folder
    from pipeline.inference.forms import check_form, convert
    from pipeline.inference.items import STANDARD_INPUT, check_input, read_items
    from pipeline.inference.models import open_model
    from pipeline.inference.predicting import predict_file, predict_lines

    model = open_model(folder)
    gc.freeze()  # else Python's collector visits the objects of all libraries once (0.2 s)
    if own["input"] == STANDARD_INPUT and not own["output"]:
        check_input(STANDARD_INPUT, model)
        tally = predict_lines(model, read_items(own["input"], model), sys.stdout.buffer)
    elif Path(own["input"]).is_dir():
        output = Path(own["output"] or "predictions")
        _refuse_place(output, is_folder=True)
        with _alone(output):
            tally = predict_folder(model, Path(own["input"]), output)
        print(output)
    else:
        output = Path(own["output"] or "predictions.jsonl")
        lines = output if output.suffix == ".jsonl" else output.with_name(f"{output.name}.jsonl")
        check_form(output, model.kind, Path(own["input"]))
        _refuse_place(output)
        _refuse_place(lines)
        _refuse_loss(Path(own["input"]), output, lines)
        check_input(own["input"], model)
        with _alone(output):
            tally = predict_file(model, own["input"], lines)
            if lines != output:
                convert(lines, output, Path(own["input"]))
                lines.unlink()
        print(output)
    went_on = f", {tally.skipped:,} of them before" if tally.skipped else ""
    total = tally.items + tally.skipped
    console.print(f"{total:,} item{'' if total == 1 else 's'}{went_on}", markup=False)
    if tally.cut:
        longest = model.finetuned.config.max_seq_length
        said = "1 item was" if tally.cut == 1 else f"{tally.cut:,} items were"
        console.print(
            f"{said} cut to the {longest} tokens that the model reads (finetune.max_seq_length)",
            markup=False,
            soft_wrap=True,
        )
    if tally.faults:
        shown = "; ".join(f"line {number}: {fault}" for number, fault in tally.first_faults)
        more = "; …" if tally.faults > len(tally.first_faults) else ""
        said = "1 line has" if tally.faults == 1 else f"{tally.faults:,} lines have"
        console.print(f"{said} no answer: {shown}{more}", markup=False, soft_wrap=True)


def _refuse_without_effect(command: str, overrides: list[str], read: tuple[str, ...]) -> None:
    """Raise UsageError for an override that the command would ignore.

    read: the beginnings of the overrides that it reads. Other settings come from the model.
    """
    for override in overrides:
        if not override.lstrip("+~").startswith(read):
            raise UsageError(
                f"{override}: sesame {command} uses the settings of the model; leave it out"
            )


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """Wait while another process writes the same output."""

    def say(what: str) -> None:
        console.print(f"{output}: {what}", markup=False)

    with lease(output.with_name(f".{output.name}.lease"), lambda: False, say):
        yield


def _refuse_place(output: Path, *, is_folder: bool = False) -> None:
    """Raise UsageError where no file, or no folder, can be written, before any work."""
    if output.exists() and output.is_dir() != is_folder:
        found, wanted = ("file", "folder") if is_folder else ("folder", "file")
        raise UsageError(f"output={output}: is a {found}; name a {wanted}")
    nearest = next(folder for folder in output.absolute().parents if folder.exists())
    if not nearest.is_dir():
        raise UsageError(f"output={output}: {nearest} is a file, not a folder; name another output")


def _refuse_loss(source: Path, output: Path, lines: Path) -> None:
    """Raise UsageError if the output would replace the input, or annotations, often made by hand.

    lines: the file of JSON lines from which another form is made.
    """
    for written in (output, lines):
        if source.exists() and written.exists() and written.samefile(source):
            raise UsageError(f"output={output}: would replace the input; name another file")
    if output.suffix == ".ann" and output.exists():
        raise UsageError(f"output={output}: has annotations already; name another file")


def evaluate(arguments: Arguments) -> None:
    """Score a fine-tuned model on the test file of a task; without one, on its test examples."""
    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, {"model": ""})
    if not own["model"]:
        raise UsageError("name a model and a task: model=<run>/<task> task=<task>")
    config = compose_config(overrides)
    _refuse_without_effect("evaluate", overrides, ("task", "experiment=", "paths.", "name="))
    store = open_store(replace(arguments, overrides=overrides))
    folder = find_model(f"model={own['model']}", own["model"], store)

    from pipeline.inference.models import open_model

    finetuned = open_model(folder).finetuned
    _refuse_other_task(config.task, finetuned.task)
    task = as_trained(config.task, finetuned.task)
    examples = read_test(task, finetuned.answers.labels, config.finetune.seed)
    scores = finetuned.answers.score(examples, finetuned.predict(examples))
    title = escape(f"{config.task.name}: {len(examples):,} examples")
    table = Table(title=title, show_header=False)
    for name, value in sorted(scores.items(), key=lambda item: item[0] != config.task.metric):
        table.add_row(name, f"{100 * value:.1f}")
    show(table)


def as_trained(task: TaskConfig, trained: TaskConfig) -> TaskConfig:
    """Return a task to score with the settings that decide what its model sees."""
    context = trained.context if task.reader in WITH_DOCUMENTS else "sentence"
    return replace(task, word_split=trained.text_rule, context=context)


def _refuse_other_task(task: TaskConfig, trained: TaskConfig) -> None:
    """Raise UsageError for a task whose examples or answers are not of the model's form."""
    if task.members:
        names = ", ".join(f"task={name}" for name in task.members)
        raise UsageError(f"task={task.name}: is a suite; evaluate one of its tasks: {names}")
    if task.kind != trained.kind:
        raise UsageError(
            f"task={task.name}: its kind is {task.kind}, the model's "
            f"{trained.kind}; choose another task or model"
        )
    forms = ["single texts" if each.text_b is None else "pairs" for each in (task, trained)]
    if task.kind in OF_ONE_OR_TWO_TEXTS and forms[0] != forms[1]:
        raise UsageError(
            f"task={task.name}: has {forms[0]}, but the model was trained with {forms[1]}; set "
            "task.text_a and task.text_b to fit, or choose another task or model"
        )
    if task.unanswerable and not trained.unanswerable:
        raise UsageError(
            f"task={task.name}: its questions may have no answer, but the model was trained with "
            "task.unanswerable=false and always gives one; choose another task or model"
        )
    if trained.context == "document" and task.reader not in WITH_DOCUMENTS:
        raise UsageError(
            f"task={task.name}: the model was trained with task.context=document, which "
            f"task.reader={task.reader} has not; choose another task or model"
        )

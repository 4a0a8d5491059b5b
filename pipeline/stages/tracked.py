"""Sends the curves and scores of a stage that has trained to the dashboards."""

from data_prep.progress import console
from pipeline.workflow.stage import Work


def track(work: Work, name: str, scores: dict[str, float]) -> None:
    """Send the training in `work.out` under `name`, in the group of its run or sweep.

    The curves are those of metrics.jsonl. A dashboard that fails is reported and stops nothing.
    """
    if not work.config.tracking.active:
        return

    from pipeline.tracking.tracker import track_finished
    from pipeline.tracking.training import Training

    def say(text: str) -> None:
        console.print(text, markup=False)

    training = Training.in_folder(name, work.out, work.config.name)
    track_finished(work.config.tracking, training, scores, say)

"""The stages in the order of execution, one thin file per stage.

May use every room but `bench` and `commands`.
"""

from pipeline.stages.examples import Examples
from pipeline.stages.export import Export
from pipeline.stages.finetune import Finetune
from pipeline.stages.layers import Layers
from pipeline.stages.model import Model
from pipeline.stages.pretrain import Pretrain
from pipeline.stages.report import Report
from pipeline.stages.shard import Shard
from pipeline.stages.tokenizer import Tokenizer
from pipeline.stages.vectors import Vectors
from pipeline.workflow.stage import Stage

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Shard(), Tokenizer(), Vectors(), Examples(), Pretrain(), Export(), Finetune(), Model(),
        Layers(), Report(),
    )
}  # fmt: skip

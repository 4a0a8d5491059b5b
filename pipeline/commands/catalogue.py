"""Every command: the function that does it, its options, and its line in the help."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """A command: the function that does it, its options, and its line in the help."""

    function: str  # module:function
    help: str
    options: dict[str, str] = field(default_factory=dict)  # option to meaning
    takes: str = "[overrides]"


CONFIG_OPTIONS = {
    "--cfg=": "print the configuration (job, hydra or all) and do nothing",
    "--resolve": "with --cfg: resolve interpolations",
    "--package=": "with --cfg: only this part",
}
STAGE_OPTIONS = {
    "-m": "sweep: comma-separated values run one after another, or through hydra/launcher",
    **CONFIG_OPTIONS,
}
TASK_OPTIONS = {
    **STAGE_OPTIONS,
    "--at-once=": "make so many fine-tunings at a time, each with its share of the cores; "
    "as many as cores and memory allow where not said",
}
ARRAY_OPTIONS = {
    **STAGE_OPTIONS,
    "--share=": "make only this share of the pieces, 0/8 to 7/8, beside others; see slurm/",
}
_STAGE = "pipeline.commands.stages:stage"
COMMANDS = {
    "run": Command(
        "pipeline.commands.stages:run",
        "everything the experiment names, skipping what is done",
        {
            "--until=": "stop after this stage",
            "--from=": "start at this stage; those before must be done",
            **TASK_OPTIONS,
        },
    ),
    "plan": Command(
        "pipeline.commands.stages:show_plan", "what run would do, reuse, and why", CONFIG_OPTIONS
    ),
    "shard": Command(_STAGE, "raw text to cleaned, split document shards", ARRAY_OPTIONS),
    "tokenizer": Command(_STAGE, "document shards to a vocabulary", STAGE_OPTIONS),
    "vectors": Command(_STAGE, "document shards, or a given file, to word vectors", STAGE_OPTIONS),
    "examples": Command(_STAGE, "document shards to masked training rows", ARRAY_OPTIONS),
    "pretrain": Command(_STAGE, "training rows to a pretrained encoder", STAGE_OPTIONS),
    "export": Command(_STAGE, "a pretrained encoder to a folder others can load", STAGE_OPTIONS),
    "finetune": Command(_STAGE, "an encoder and a task to scores", TASK_OPTIONS),
    "layers": Command(_STAGE, "scores of every choice of an encoder's layers", STAGE_OPTIONS),
    "report": Command(_STAGE, "one page about a run", STAGE_OPTIONS),
    "submit": Command(
        "pipeline.commands.cluster:submit",
        "run's work as SLURM jobs, what is done or queued left out",
        {
            "--dry-run": "print every script and submit nothing",
            "--until=": "stop after this stage",
            "--from=": "start at this stage; those before must be done",
            "-m": "a graph for every combination of comma-separated values; common stages once",
            **CONFIG_OPTIONS,
        },
    ),
    "status": Command(
        "pipeline.commands.cluster:status",
        "a submission's jobs: state, progress, logs",
        {"--once": "print and leave, also on a terminal"},
        takes="[submission] [overrides]",
    ),
    "cancel": Command(
        "pipeline.commands.cluster:cancel",
        "end what a submission has waiting or running",
        takes="[submission] [overrides]",
    ),
    "job": Command(
        "pipeline.commands.cluster:job",
        "one stage of a submission; what its scripts run",
        {"--share=": "only this share of its pieces"},
        takes="<store/submissions/…/nodes/….json>",
    ),
    "path": Command(
        "pipeline.commands.stages:path",
        "where a stage's output is or would be",
        CONFIG_OPTIONS,
        takes="<stage> [overrides]",
    ),
    "list": Command("pipeline.commands.keeping:list_runs", "runs with state, step and results"),
    "du": Command("pipeline.commands.keeping:disk_usage", "bytes and files by stage and run"),
    "clean": Command(
        "pipeline.commands.keeping:clean",
        "remove outputs no run needs",
        {
            "--yes": "really remove",
            "--forget=": "first forget this run",
            "--forget-earlier=": "first forget what this run made under earlier settings",
        },
    ),
    "sync": Command(
        "pipeline.commands.sync:sync_run",
        "upload a pretraining to wandb as one run",
        takes="<run or fingerprint> [paths.store=…]",
    ),
    "inspect": Command(
        "pipeline.commands.looking:inspect_examples",
        "decoded examples with masks, segments and labels",
        takes="[count=5] [shard=<file to check>] [overrides]",
    ),
    "estimate": Command(
        "pipeline.commands.estimate:estimate_pretraining",
        "memory, tokens, operations, disk, hours and cost of a pretraining",
        {
            "--gpu=": "only this one, such as A100-80",
            "--utilisation=": "share of the GPU's peak that training reaches (0.4)",
            "--price=": "dollars an hour of one GPU",
            **CONFIG_OPTIONS,
        },
    ),
    "similarity": Command(
        "pipeline.commands.similarity:similarity",
        "word similarity beside people's judgements (SimLex, WordSim-353)",
        takes="[pairs=<file>] [overrides]",
    ),
    "embed": Command(
        "pipeline.commands.embed:embed",
        "contextual vectors of sentences, one sentence per line",
        takes="encoder=<run or folder> input=<file> [output=vectors.safetensors or .npy] "
        "[layers=all, top or mix] [weights=0.2,0.3,0.5] [gamma=1] [overrides]",
    ),
    "fill": Command(
        "pipeline.commands.fill:fill",
        "what a BERT puts into the blanks of a text, with probabilities",
        takes="encoder=<run or folder> 'text=The film was [MASK].' [top=5] [overrides]",
    ),
    "senses": Command(
        "pipeline.commands.senses:senses",
        "a page of a word's occurrences: which senses an encoder tells apart",
        takes="word=bank 'encoder=[a,b]' [sentences=<file: a sentence, or sentence tab label, a "
        "line>] [count=200] [output=senses] [overrides]",
    ),
    "doctor": Command("pipeline.commands.doctor:doctor", "what this machine can do, with remedies"),
    "bench": Command(
        "pipeline.commands.bench:bench", "timings against peers in one run", takes="<what>"
    ),
}

# The order of the help; every command is in one group.
GROUPS = {
    "Work": (
        "run", "plan", "shard", "tokenizer", "vectors", "examples", "pretrain", "export",
        "finetune", "layers", "report",
    ),
    "Cluster": ("submit", "status", "cancel", "job"),
    "Store": ("list", "path", "du", "clean", "sync"),
    "A look inside": ("inspect", "estimate", "doctor", "bench"),
    "Using an encoder": ("embed", "fill", "similarity", "senses"),
}  # fmt: skip

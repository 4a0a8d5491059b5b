"""The table of all commands: function, help line, options and arguments."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """One command of the command line."""

    function: str  # module:function; takes the parsed Arguments
    help: str
    options: dict[str, str] = field(default_factory=dict)  # option to meaning
    takes: str = "[overrides]"


CONFIG_OPTIONS = {
    "--cfg=": "print the configuration (job, hydra or all) and do nothing; short: -c",
    "--resolve": "with --cfg: resolve interpolations",
    "--package=": "with --cfg: only this part",
    "--info=": "print what Hydra knows (all, config, defaults, defaults-tree, plugins or "
    "searchpath) and do nothing",
    "--config-dir=": "a folder with recipes and groups of yours, before ./conf",
}
SHORT = {"-c": "--cfg", "-p": "--package", "-i": "--info", "-cd": "--config-dir"}  # as Hydra
STAGE_OPTIONS = {
    "-m": "sweep: comma-separated values run one after another, or through hydra/launcher",
    "--stop-early": "with -m: stop points that are worse than the median of the others at the same "
    "step (pretrain, finetune)",
    "--force": "make the output again beside the old one, which it replaces when it is done; mark "
    "what was made from the old one",
    **CONFIG_OPTIONS,
}
TASK_OPTIONS = {
    **STAGE_OPTIONS,
    "--at-once=": "number of fine-tunings to run in parallel, each with its share of the cores; "
    "default: as many as cores and memory allow",
}
ARRAY_OPTIONS = {
    **STAGE_OPTIONS,
    "--share=": "make only this share of the work units, 0/8 to 7/8, in parallel with others; of a "
    "later pass: 0/8:write; see slurm/",
}
_STAGE = "pipeline.commands.stages:stage"
COMMANDS = {
    "run": Command(
        "pipeline.commands.stages:run",
        "make everything the experiment names; skip what is done",
        {
            "--until=": "stop after this stage",
            "--from=": "start at this stage; the stages before it must be done",
            **TASK_OPTIONS,
        },
    ),
    "plan": Command(
        "pipeline.commands.stages:show_plan",
        "show what run would make and reuse, and why",
        {"-m": "all points of a sweep, with hours, jobs and disk in all", **CONFIG_OPTIONS},
    ),
    "shard": Command(_STAGE, "raw text to cleaned, split document shards", ARRAY_OPTIONS),
    "tokenizer": Command(_STAGE, "document shards to a vocabulary", ARRAY_OPTIONS),
    "vectors": Command(_STAGE, "document shards, or a given file, to word vectors", STAGE_OPTIONS),
    "examples": Command(_STAGE, "document shards to masked training rows", ARRAY_OPTIONS),
    "pretrain": Command(_STAGE, "training rows to a pretrained encoder", STAGE_OPTIONS),
    "export": Command(_STAGE, "a pretrained encoder to a folder others can load", STAGE_OPTIONS),
    "finetune": Command(_STAGE, "an encoder and a task to scores and a model", TASK_OPTIONS),
    "model": Command(_STAGE, "a fine-tuning to a model that predict loads", STAGE_OPTIONS),
    "layers": Command(_STAGE, "an encoder and a task to a score per layer choice", STAGE_OPTIONS),
    "report": Command(_STAGE, "one page about a run", STAGE_OPTIONS),
    "submit": Command(
        "pipeline.commands.submit:submit",
        "do what run or a stage does as SLURM jobs; skip what is queued",
        {
            "--dry-run": "print every script and submit nothing",
            "--rehearse": "only try: a job per partition and account, then sesame rehearse",
            "--steps=": "with --rehearse: as for sesame rehearse",
            "--price=": "with --rehearse: as for sesame rehearse",
            "--time=": "time limit of all jobs of this submission, such as 2:00:00",
            "--partition=": "partition of all jobs of this submission",
            "--until=": "stop after this stage",
            "--from=": "start at this stage; the stages before it must be done",
            "-m": "sweep: submit every combination of comma-separated values; shared stages once",
            **CONFIG_OPTIONS,
        },
        takes="[stage] [overrides]",
    ),
    "status": Command(
        "pipeline.commands.cluster:status",
        "show a submission's jobs: state, progress, cause of a failure",
        {"--once": "print once and exit, even on a terminal"},
        takes="[submission] [overrides]",
    ),
    "logs": Command(
        "pipeline.commands.cluster:logs",
        "print the logs of a submission's jobs",
        {"--follow": "also print what is added, until the jobs have ended"},
        takes="[submission] [stage or job] [overrides]",
    ),
    "sweep": Command(
        "pipeline.commands.submitted_sweep:show_sweep",
        "print the table of a sweep, local or submitted",
        takes="[sweep] [overrides]",
    ),
    "cancel": Command(
        "pipeline.commands.cluster:cancel",
        "cancel a submission's waiting and running jobs",
        takes="[submission] [overrides]",
    ),
    "job": Command(
        "pipeline.commands.cluster:job",
        "run one stage of a submission (called by job scripts)",
        {"--share=": "only this share of its work units"},
        takes="<store/submissions/…/nodes/….json>",
    ),
    "path": Command(
        "pipeline.commands.stages:path",
        "print where an output or a kept model is or would be",
        CONFIG_OPTIONS,
        takes="<stage> [overrides] or model model=<run>/<task>",
    ),
    "list": Command("pipeline.commands.list:list_runs", "list runs with state and results"),
    "board": Command(
        "pipeline.commands.board:show_board",
        "write a page of the whole store, and renew it until Ctrl-C",
        {"--once": "write it once and exit"},
    ),
    "du": Command("pipeline.commands.du:disk_usage", "show bytes and files by stage and run"),
    "clean": Command(
        "pipeline.commands.clean:clean",
        "remove outputs no run needs",
        {
            "--yes": "really remove",
            "--forget=": "first forget this run",
            "--forget-earlier=": "first forget the outputs of this run's earlier settings",
        },
    ),
    "verify": Command(
        "pipeline.commands.verify:verify",
        "compare all files of a run or of the store with their manifests",
        takes="[run or output] [overrides]",
    ),
    "repair": Command(
        "pipeline.commands.repair:repair",
        "set damaged outputs aside and make them again",
        takes="[run or output] [overrides]",
    ),
    "audit": Command(
        "pipeline.commands.audit:audit",
        "write a page of what a run could give away about its text",
        takes="<run> [canaries=<file>] [k=5] [rows=256] [output=audit] [paths.store=…]",
    ),
    "sync": Command(
        "pipeline.commands.sync:sync_run",
        "upload a pretraining and its fine-tunings to wandb, each as one run",
        takes="<run or fingerprint> [paths.store=…]",
    ),
    "inspect": Command(
        "pipeline.commands.inspect:inspect_examples",
        "show decoded examples, dropped documents or unread files",
        takes="[dropped | unread] [reason=<why>] [count=5] [shard=<file to check>] [overrides]",
    ),
    "estimate": Command(
        "pipeline.commands.estimate:estimate_pretraining",
        "estimate memory, tokens, FLOPs, disk, hours and cost of a training",
        {
            "-m": "one row per point of a sweep, and all points together",
            "--gpu=": "only this GPU, such as A100-80",
            "--utilisation=": "share of the GPU's peak that training reaches (0.4)",
            "--price=": "dollars per GPU and hour",
            **CONFIG_OPTIONS,
        },
    ),
    "rehearse": Command(
        "pipeline.commands.rehearse:rehearse",
        "try a pretraining for some steps on its real devices; write a page",
        {
            "--steps=": "steps of each leg (24)",
            "--place=": "only report to this file that a job ran here (for submit --rehearse)",
            "--places=": "a folder with such reports, to put on the page",
            "--price=": "dollars per GPU and hour",
            **CONFIG_OPTIONS,
        },
    ),
    "similarity": Command(
        "pipeline.commands.similarity:similarity",
        "compare cosines of words or sentences with human judgements",
        takes="encoder=<run or folder> [pairs=<file of word pairs> or task=stsb task.data_dir=…] "
        "[pooling=mean, first or max] [layers=last or mix] [overrides]",
    ),
    "embed": Command(
        "pipeline.commands.embed:embed",
        "write vectors of words or sentences, one sentence per line",
        takes="encoder=<run or folder> input=<file> [output=vectors.safetensors or .npy] "
        "[unit=word or sentence] [pooling=mean, first or max] [layers=all, last or mix] "
        "[weights=0.2,0.3,0.5] [gamma=1] [overrides]",
    ),
    "fill": Command(
        "pipeline.commands.fill:fill",
        "predict the blanks of a text with a BERT, with probabilities",
        takes="encoder=<run or folder> 'text=The film was [MASK].' [top=5] [overrides]",
    ),
    "predict": Command(
        "pipeline.commands.predict:predict",
        "answer every item of a file with a fine-tuned model",
        takes="model=<run>/<task> input=<.txt, .tsv, .csv, .jsonl, .conll, .json, folder or -> "
        "[output=predictions.jsonl]",
    ),
    "evaluate": Command(
        "pipeline.commands.predict:evaluate",
        "score a fine-tuned model on the test file of a task",
        takes="model=<run>/<task> task=<task> [overrides]",
    ),
    "onnx": Command(
        "pipeline.commands.onnx:export_onnx",
        "export a model or an encoder to ONNX, verified by onnxruntime",
        takes="model=<run>/<task> or encoder=<run or folder> [out=model.onnx] [overrides]",
    ),
    "publish": Command(
        "pipeline.commands.publish:publish",
        "prepare a model or an encoder for the Hugging Face Hub",
        {"--upload": "upload the folder to repo=<owner>/<name>; needs HF_TOKEN"},
        takes="model=<run>/<task> or encoder=<run or folder> licence=<identifier> "
        "[language=sv,fi] [datasets=a,b] [base_model=<name>] [data=<file: statement about the "
        "training data>] [out=published/…] [repo=<owner>/<name>]",
    ),
    "senses": Command(
        "pipeline.commands.senses:senses",
        "write a page that shows which senses of a word encoders separate",
        takes="word=bank 'encoder=[a,b]' [sentences=<file: per line a sentence, or a sentence, a "
        "tab and a label>] [count=200] [output=senses] [overrides]",
    ),
    "doctor": Command("pipeline.commands.doctor:doctor", "check this machine; suggest remedies"),
    "bench": Command(
        "pipeline.commands.bench:bench", "measure speed against other libraries", takes="<what>"
    ),
}

# Groups and order of the help; every command is in one group.
GROUPS = {
    "Work": (
        "run", "plan", "shard", "tokenizer", "vectors", "examples", "pretrain", "export",
        "finetune", "model", "layers", "report",
    ),
    "Cluster": ("submit", "status", "logs", "sweep", "cancel", "job"),
    "Store": ("list", "board", "path", "du", "clean", "verify", "repair", "audit", "sync"),
    "A look inside": ("inspect", "estimate", "rehearse", "doctor", "bench"),
    "Using a model": (
        "predict", "evaluate", "embed", "fill", "similarity", "senses", "onnx", "publish"
    ),
}  # fmt: skip

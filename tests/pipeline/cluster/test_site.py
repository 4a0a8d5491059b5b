from pathlib import Path

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.cluster.resources import Resources
from pipeline.cluster.scripts import TEMPLATES, environment, fill_template
from pipeline.cluster.site import Site, read_site


def write(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "site.yaml").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SESAME_SITE", raising=False)


def test_a_stage_has_its_own_settings_and_else_the_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        "partition: gpu\ntime: 24:00:00\ngpus: a100:4\nextra: [--exclusive]\ncontinue: chain\n"
        "activate: source ${HOME}/venv/bin/activate\nconstraint: fast\ncpus: 4\n"
        "stages:\n  shard: {partition: cpu, constraint: null, cpus: ~, extra: [--mem=8G]}\n"
        "  export: {gpus: 1, extra: null}\n",
        monkeypatch,
    )
    site = read_site()
    assert site.continuation == "chain"
    assert site.activate == "source ${HOME}/venv/bin/activate"  # the shell's to expand
    assert site.of("pretrain").options() == [
        "--partition=gpu", "--time=24:00:00", "--constraint=fast", "--gpus-per-node=a100:4",
        "--cpus-per-task=4", "--exclusive",
    ]  # fmt: skip
    assert "--gres=gpu:a100:4" in site.of("pretrain").options(as_gres=True)
    assert site.of("tokenizer").options() == [  # computes on no GPU
        "--partition=gpu", "--time=24:00:00", "--constraint=fast", "--cpus-per-task=4",
        "--exclusive",
    ]  # fmt: skip
    assert site.of("export").options() == [
        "--partition=gpu", "--time=24:00:00", "--constraint=fast", "--gpus-per-node=1",
        "--cpus-per-task=4",
    ]  # fmt: skip
    assert site.of("shard").options() == [
        "--partition=cpu", "--time=24:00:00", "--exclusive", "--mem=8G",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("partion: gpu", "did you mean partition?"),
        ("stages: {pretrian: {gpus: 1}}", "did you mean pretrain?"),
        ("stages: {pretrain: {gpu: 1}}", "stages.pretrain.gpu; did you mean gpus?"),
        ("gpus: 4:a100", "gpus=4:a100: must be a number, a type, or both, such as a100:4"),
        ("time: tomorrow", "time=tomorrow: must be a time limit of SLURM"),
        ("cpus: many", "cpus"),
        ("array: 0", "array=0: must be at least 1"),
        ("continue: maybe", "continue=maybe: must be one of requeue, chain, stop"),
        ("signal: [", "line 1"),
        ("just words", "must have lines like"),
        ("stages: {pretrain: 4}", "stages.pretrain"),
    ],
)
def test_a_mistake_in_the_site_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    write(tmp_path, text, monkeypatch)
    with pytest.raises(UsageError) as error:
        read_site()
    assert "site.yaml" in str(error.value)
    assert says in str(error.value)


def test_one_submission_may_have_another_partition_and_time() -> None:
    site = Site(time="24:00:00", stages={"shard": Resources(partition="cpu", cpus=8)})
    changed = site.with_settings(partition="debug", time=None)
    assert changed.of("shard").options() == ["--partition=debug", "--cpus-per-task=8"]
    assert changed.of("pretrain").options() == ["--partition=debug", "--time=24:00:00"]


def test_mail_and_reservation_are_options() -> None:
    own = Resources(mail="me@example.org", reservation="course")
    assert own.options() == [
        "--reservation=course", "--mail-user=me@example.org", "--mail-type=END,FAIL",
    ]  # fmt: skip
    assert "--mail-type=FAIL" in Resources(mail="me", mail_type="FAIL").options()


def test_a_site_file_must_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "", monkeypatch)
    (tmp_path / "site.yaml").write_bytes(b"partition: \xff\n")
    with pytest.raises(SesameError, match=r"site\.yaml: not UTF-8 at byte 11"):
        read_site()


def test_a_site_file_that_was_named_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESAME_SITE", str(tmp_path / "none.yaml"))
    with pytest.raises(UsageError, match="there is no such file"):
        read_site()


@pytest.mark.parametrize(
    ("time", "minutes"),
    [
        ("90", 90),
        ("10:30", 11),
        ("01:30:00", 90),
        ("2-0", 2880),
        ("1-12:30", 2190),
        (None, None),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_limits_are_read_as_slurm_reads_them(time: str | None, minutes: int | None) -> None:
    assert Resources(time=time).minutes() == minutes


@pytest.mark.parametrize("template", [path.stem for path in TEMPLATES.glob("*.sbatch")])
def test_a_filled_template_has_each_option_once(template: str) -> None:
    site = Site(modules=["cuda/12"], activate="source env")
    options = ["--job-name=mine", "--no-requeue", "--signal=B:USR1@60"]
    text = fill_template(
        template, options, environment(site, Path("/c o"), Path("/s")), ["job", "a b"]
    )
    names = [line.split("=")[0] for line in text.splitlines() if line.startswith("#SBATCH")]
    assert len(names) == len(set(names))
    assert "#SBATCH --requeue" not in text
    assert "module load cuda/12\nsource env\n" in text
    assert "PYTHONPATH='/c o'" in text
    assert "set -- job 'a b'" in text
    assert text.rstrip().splitlines()[-1].startswith("exec python -m pipeline.commands.main ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('partition: "gpu\\ntouch ran"', "partition: must be one word"),
        ("partition: gpu --wrap=id", "partition: must be one word"),
        ('account: "a;id"', "account: must be one word"),
        ('stages: {shard: {memory: "8G\\n"}}', "stages.shard.memory: must be one word"),
        ('extra: [--exclusive, "--a\\ntouch ran"]', "extra: item 2 must be one option"),
        ("extra: [touch ran]", "extra: item 1 must be one option"),
        ("extra: [{touch: ran}]", "extra: item 1 must be one option"),
        ("extra: [--exclusive --mem=8G]", "extra: item 1 must be one option"),
        ('stages: {pretrain: {extra: ["--x=\\ry"]}}', "stages.pretrain.extra: item 1"),
        ('modules: [cuda, "gcc; touch ran"]', "modules: item 2 must be one module"),
        ("modules: [{touch: ran}]", "modules: item 1 must be one module"),
        ("modules: [cuda gcc]", "modules: item 1 must be one module"),
        ('activate: "source a\\ntouch ran"', "activate: must be one line"),
    ],
)
def test_no_value_becomes_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    write(tmp_path, text, monkeypatch)
    with pytest.raises(UsageError) as error:
        read_site()
    assert says in str(error.value) and "touch" not in str(error.value)


def test_spaces_in_paths_are_quoted() -> None:
    options = ["--chdir=/a b/#c", '--output=/a "b"/%j.log', "--comment=it's", "--mem=8G"]
    text = fill_template("stage", options, environment(Site(), Path("/c"), Path("/s")), [])
    written = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert written[-4:] == [
        '#SBATCH --chdir="/a b/#c"',
        '#SBATCH --output="/a \\"b\\"/%j.log"',
        '#SBATCH --comment="it\'s"',
        "#SBATCH --mem=8G",
    ]


def test_modules_are_quoted_for_the_shell() -> None:
    lines = environment(Site(modules=["cuda/12&id"]), Path("/c"), Path("/s"))
    assert "module load 'cuda/12&id'" in lines

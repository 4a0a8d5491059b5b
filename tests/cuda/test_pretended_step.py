"""The training step on a pretended CUDA device: one read, no waiting copies, the right kernels."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cuda.pretended_step import PRECISIONS, RECIPES

SOURCE = Path(__file__).with_name("pretended_cuda.cpp")
CASES = [f"{recipe} {precision}" for recipe in RECIPES for precision in PRECISIONS]
CASES += ["bert_base fp32 checkpointing"]
Report = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What was seen in each case; made by one process of its own, which registers the device."""
    compiler = shutil.which("g++")
    assert compiler, "a C++ compiler builds the pretended device; install g++"
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    include = Path(spec.origin).parent / "include"
    built = tmp_path_factory.mktemp("cuda") / "pretended_cuda.so"
    flags = ["-std=c++20", "-fPIC", "-shared", f"-I{include}"]
    flags += [f"-I{include / 'torch/csrc/api/include'}"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(built)], check=True)
    command = [sys.executable, "-m", "tests.cuda.pretended_step", str(built)]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=SOURCE.parents[2], check=True)
    found: Report = json.loads(done.stdout)
    return found


def test_the_watch_sees_what_no_step_may_do(report: Report) -> None:
    control = report["control"]
    assert control["blocking"] == {"_to_copy float32[3]": 1}
    assert control["to_host"] == {"_to_copy float32[3]": 1}
    assert control["refused"], "a read by the host must raise an error"


@pytest.mark.parametrize("case", CASES)
def test_the_host_reads_once_per_step_and_waits_for_no_copy(report: Report, case: str) -> None:
    assert len(report[case]["reads"]) == 1
    assert report[case]["blocking"] == report[case]["to_host"] == {}


@pytest.mark.parametrize("case", CASES)
def test_weights_and_moments_are_fp32_on_the_device(report: Report, case: str) -> None:
    assert report[case]["homes"] == ["cuda:0"]
    assert report[case]["moments"] == ["torch.float32"]


@pytest.mark.parametrize("case", CASES)
def test_products_are_computed_in_the_precision_that_was_asked_for(
    report: Report, case: str
) -> None:
    expected = {"float32" if "fp32" in case else "bfloat16"}
    if "muon" in case:  # orthogonalises in bf16 on CUDA, in any precision of the model
        expected |= {"bfloat16"}
    assert set(report[case]["products"]) == expected


def test_elmo_updates_its_softmax_by_row(report: Report) -> None:
    assert report["elmo_original bf16-mixed"]["by_row"] == ["softmax.weight"]
    assert report["bert_base bf16-mixed"]["by_row"] == []


@pytest.mark.parametrize("recipe", ["bert_base", "bert_large", "bert_modern", "bert_24h"])
def test_half_precision_uses_flash_attention_in_every_layer(report: Report, recipe: str) -> None:
    kernels = report[f"{recipe} bf16-mixed"]["kernels"]
    assert kernels == {"flash": 2 * 2}  # layers and micro-batches, dropout included
    assert "flash" not in report[f"{recipe} fp32"]["kernels"]

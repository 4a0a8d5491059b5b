import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_composes_the_demo_from_an_empty_directory(tmp_path: Path) -> None:
    wheels, installed, empty = tmp_path / "wheels", tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(wheels)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = wheels.glob("sesame_encoders-*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(installed), str(wheel)], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.commands.main", "run", "experiment=demo", "--cfg", "job"],
        cwd=empty,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "name: demo" in done.stdout
    assert (installed / "pipeline" / "slurm" / "stage.sbatch").exists()
    assert list(empty.iterdir()) == []

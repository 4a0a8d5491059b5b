"""A real SLURM on this machine: munge, a controller and three node daemons, in a folder of its own.

Two nodes make the partition `main`. The third, in the partition `gpu`, claims two GPUs of a type
that nobody sells; their device files are empty.

Everything is started on free ports and ended by its process id; nothing of the machine's own SLURM
is read or touched (`SLURM_CONF` points here).
"""

import os
import pwd
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

NODES = ("alpha", "beta")
GPU_NODE = "gamma"
# cred_expire is also how long a requeued job waits before it may start again.
CPUS = 4  # a node; more than this machine has, which config_overrides allows
START_SECONDS = 30

CONFIGURATION = """
ClusterName=sesame
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
MpiDefault=none
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmdTimeout=5
MinJobAge=3600
KillWait=30
OverTimeLimit=0
JobAcctGatherType=jobacct_gather/none
{nodes}
GresTypes=gpu
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=gamma MaxTime=INFINITE State=UP
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Cluster:
    """The daemons of one cluster."""

    folder: Path
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What makes SLURM's commands speak to this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Start everything and wait until all nodes are idle."""
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self._configure()
        self._start(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}",
            f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
            f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed",
        )  # fmt: skip
        self._wait("munge", lambda: (self.folder / "munge.socket").exists())
        self._start("slurmctld", "slurmctld", "-D", "-i")
        for node in (*NODES, GPU_NODE):
            self.start_node(node)
        self._wait("idle nodes", lambda: self.states() == ["idle"] * 3)

    def start_node(self, node: str) -> None:
        """Start one node's daemon."""
        (self.folder / f"spool-{node}").mkdir(exist_ok=True)
        self._start(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """End one node's daemon at once; what runs on the node goes on, as an orphan."""
        daemon = self._daemons.pop(node)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()

    def stop(self) -> None:
        """End every job, then every daemon, the controller after the nodes."""
        self.call("scancel", f"--user={pwd.getpwuid(os.getuid()).pw_name}")
        deadline = time.monotonic() + START_SECONDS
        while self.call("squeue", "--noheader").strip() and time.monotonic() < deadline:
            time.sleep(0.2)
        for name in (*NODES, GPU_NODE, "slurmctld", "munged"):
            daemon = self._daemons.pop(name, None)
            if daemon is None:
                continue
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def call(self, *command: str) -> str:
        """What a SLURM command prints, errors included."""
        done = subprocess.run(
            command,
            env=os.environ | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.stdout

    def states(self) -> list[str]:
        """The state of each node."""
        return self.call("sinfo", "--noheader", "--Node", "--format=%t").split()

    def job_states(self, *jobs: str) -> dict[str, str]:
        """The state of each job, or of all, tasks of arrays one by one."""
        chosen = [f"--jobs={','.join(jobs)}"] if jobs else []
        said = self.call(
            "squeue", "--noheader", "--array", "--states=all", "--format=%i %T", *chosen
        )
        return dict(line.split() for line in said.splitlines())

    def _configure(self) -> None:
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} "
            f"CPUs={CPUS} RealMemory=4000 State=UNKNOWN"
            f"{' Gres=gpu:dream:2' if node == GPU_NODE else ''}"
            for node in (*NODES, GPU_NODE)
        )
        text = CONFIGURATION.format(
            host=host, port=free_port(), user=pwd.getpwuid(os.getuid()).pw_name,
            folder=self.folder, nodes=nodes, names=",".join(NODES),
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(text)
        for number in range(2):
            (self.folder / f"gpu{number}").touch()
        (self.folder / "gres.conf").write_text(
            f"NodeName={GPU_NODE} Name=gpu Type=dream File={self.folder}/gpu[0-1]\n"
        )

    def _start(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.out", "ab") as log:
            self._daemons[name] = subprocess.Popen(
                command,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, what: str, is_so: object) -> None:
        assert callable(is_so)
        deadline = time.monotonic() + START_SECONDS
        while not is_so():
            for name, daemon in self._daemons.items():
                assert daemon.poll() is None, (self.folder / f"{name}.out").read_text()
            assert time.monotonic() < deadline, f"no {what} after {START_SECONDS} s"
            time.sleep(0.1)

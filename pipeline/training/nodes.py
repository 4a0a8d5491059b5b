"""Pretraining on several nodes without SLURM: `sesame pretrain` is started once per node.

Kubernetes (PyTorchJob), torchrun or a shell sets MASTER_ADDR, MASTER_PORT, NODE_RANK and WORLD_SIZE
on every node. The launcher of node 0 makes the output, as on one machine. Those of the other nodes
assist it: they start their ranks when it says so. Launchers talk through torch's TCPStore at the
given address; ranks meet at a port that node 0 chooses. All nodes see the same store.

    sesame/joined/<k>    set once node k is ready to start ranks
    sesame/launches      number of launches so far (a divergence leads to a second one)
    sesame/launch/<n>    the ranks' port
    sesame/ended/<n>/<k> exit code of node k's ranks
    sesame/beat/<k>      counts up while node k's ranks run
"""

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.progress import console
from pipeline.training.config import TrainerConfig
from pipeline.training.environment import free_port, shared_variables
from pipeline.training.exits import DIVERGED, INTERRUPTED, Interrupted
from pipeline.training.processes import FINE, run_ranks

# Names of a node's number, by who sets them: users, PyTorchJob's elastic mode, torchrun, PyTorchJob
NODE_RANKS = ("NODE_RANK", "PET_NODE_RANK", "GROUP_RANK", "RANK")
ENDED = (*FINE, DIVERGED)  # codes of ranks that ended as they should
LOST = 1  # code of a node whose launcher does not answer any more
SILENT_SECONDS = 60.0  # without a beat before a node counts as lost
LOOK_SECONDS = 0.2
CONNECT_MINUTES = 30.0  # nodes start at different times, and data stages may run first
AGAIN = "start all nodes again; training goes on from the last checkpoint"


@dataclass(frozen=True)
class Placement:
    """This machine's place among the nodes of a training."""

    rank: int
    nodes: int
    address: str
    port: int
    is_server: bool  # True: this launcher opens the TCPStore; under torchrun its agent does


def placement(trainer: TrainerConfig) -> Placement | None:
    """Return this machine's place among several nodes; None on one node and in a SLURM job.

    Raises `UsageError` if the variables are incomplete or contradict the configuration.
    """
    given = os.environ
    if trainer.num_nodes == 1 or "SLURM_JOB_ID" in given or "MASTER_ADDR" not in given:
        return None
    rank = next((given[name] for name in NODE_RANKS if name in given), None)
    if rank is None or not rank.isdecimal() or int(rank) >= trainer.num_nodes:
        raise UsageError(
            f"NODE_RANK={rank or ''}: must be this node's number, 0 to {trainer.num_nodes - 1} "
            f"(trainer.num_nodes={trainer.num_nodes}); MASTER_ADDR is set, so this is one of "
            "several nodes"
        )
    if int(given.get("LOCAL_WORLD_SIZE", 1)) > 1:
        raise UsageError(
            f"LOCAL_WORLD_SIZE={given['LOCAL_WORLD_SIZE']}: start sesame once per node (torchrun "
            "--nproc-per-node=1); it starts trainer.devices ranks itself"
        )
    world = given.get("WORLD_SIZE", str(trainer.num_nodes))
    if world not in (str(trainer.num_nodes), str(trainer.world_size)):
        raise UsageError(
            f"WORLD_SIZE={world}: contradicts trainer.num_nodes={trainer.num_nodes} and "
            f"trainer.devices={trainer.devices}; set trainer.num_nodes to the number of replicas"
        )
    own_store = given.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    port = int(given.get("MASTER_PORT", 29500))
    return Placement(
        int(rank), trainer.num_nodes, given["MASTER_ADDR"], port, own_store and rank == "0"
    )


@functools.cache  # node 0 must keep its server for a second launch
def _connect(place: Placement) -> Any:
    """Return the TCPStore of all launchers; node 0 opens it, the others wait for it."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        return TCPStore(
            place.address,
            place.port,
            is_master=place.is_server,
            timeout=timedelta(minutes=CONNECT_MINUTES),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        raise SesameError(
            f"MASTER_ADDR={place.address} MASTER_PORT={place.port}: the nodes cannot meet there; "
            "check the address and choose a free port"
        ) from error


@contextmanager
def _reporting_loss(place: Placement) -> Iterator[None]:
    """Turn errors of the connection into a sentence."""
    try:
        yield
    except RuntimeError as error:
        raise SesameError(
            f"node {place.rank}: the launcher on {place.address} does not answer any more; {AGAIN}"
        ) from error


class _Meeting:
    """One launch on all nodes, as one launcher sees it."""

    def __init__(self, store: Any, place: Placement, number: int) -> None:
        self._store, self._place, self._number = store, place, number
        self._beats: dict[int, tuple[int, float]] = {}  # last beat of a node, and when it changed
        self._last_look = 0.0
        self.failed: tuple[int, int] | None = None  # the first node that failed, and its code

    def failure(self) -> int | None:
        """Send a beat; return a code if another node failed or is lost. Looks once a second."""
        now = time.monotonic()
        if now - self._last_look < 1:
            return None
        self._last_look = now
        self._store.add(f"sesame/beat/{self._place.rank}", 1)
        for node in self._others():
            code = self._code(node, now)
            if self.failed is None and code not in (None, *ENDED):
                self.failed = (node, code or LOST)
        return self.failed[1] if self.failed else None

    def _others(self) -> list[int]:
        return [node for node in range(self._place.nodes) if node != self._place.rank]

    def _code(self, node: int, now: float) -> int | None:
        """Return the code of a node's ranks; None while they run and the node is heard of."""
        if self._store.check([self._key(node)]):
            return int(self._store.get(self._key(node)))
        beat = self._store.add(f"sesame/beat/{node}", 0)
        if self._beats.get(node, (None, 0.0))[0] != beat:
            self._beats[node] = (beat, now)
        return LOST if now - self._beats[node][1] > SILENT_SECONDS else None

    def _key(self, node: int) -> str:
        return f"sesame/ended/{self._number}/{node}"

    def tell(self, code: int) -> None:
        """Tell the other launchers how the ranks of this node ended."""
        self._store.set(self._key(self._place.rank), str(code))

    def wait_for_others(self) -> dict[int, int]:
        """Wait until the ranks of all other nodes have ended; return the codes by node."""
        while True:
            codes = {node: self._code(node, time.monotonic()) for node in self._others()}
            if None not in codes.values():
                return {node: code for node, code in codes.items() if code is not None}
            self._store.add(f"sesame/beat/{self._place.rank}", 1)
            time.sleep(LOOK_SECONDS)


def _variables(trainer: TrainerConfig, place: Placement, port: str) -> dict[str, str]:
    """Return the variables of this node's ranks."""
    from pipeline.training.rank import interface_to  # imports numba, which takes a while

    interface = os.environ.get("GLOO_SOCKET_IFNAME") or interface_to(place.address)
    return shared_variables(trainer) | {
        "WORLD_SIZE": str(trainer.world_size),
        "LOCAL_WORLD_SIZE": str(trainer.devices),
        "GROUP_RANK": str(place.rank),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": interface,
    }


def lead(run_dir: Path, trainer: TrainerConfig, place: Placement) -> tuple[int, int]:
    """Run the ranks of node 0 and have the other nodes run theirs.

    Returns the deciding rank and its exit code.
    """
    with _reporting_loss(place):
        store = _connect(place)
        _wait_for_nodes(store, place)
        number = store.add("sesame/launches", 1)
        meeting, port = _Meeting(store, place, number), str(free_port())
        store.set(f"sesame/launch/{number}", port)
        variables = _variables(trainer, place, port)
        rank, code = run_ranks(run_dir, variables, trainer.devices, 0, meeting.failure)
        meeting.tell(code)
        if meeting.failed is None and code in ENDED:
            for node, other in meeting.wait_for_others().items():
                if other not in ENDED:
                    meeting.failed = (node, other)
                code = max(code, other)
    if meeting.failed is not None:
        node, code = meeting.failed
        return node * trainer.devices, code
    return rank, code


def _wait_for_nodes(store: Any, place: Placement) -> None:
    """Wait until the launchers of all other nodes are there; raise `SesameError` if one is not."""
    deadline = time.monotonic() + CONNECT_MINUTES * 60
    for node in range(1, place.nodes):
        if not store.check([f"sesame/joined/{node}"]):
            console.print(f"pretrain: waiting for node {node}", markup=False)
        while not store.check([f"sesame/joined/{node}"]):
            if time.monotonic() > deadline:
                raise SesameError(
                    f"node {node} did not join in {CONNECT_MINUTES:g} minutes; start the same "
                    f"command there with NODE_RANK={node}, MASTER_ADDR and MASTER_PORT as here"
                )
            time.sleep(LOOK_SECONDS)


def assist(
    run_dir: Path, trainer: TrainerConfig, place: Placement, is_done: Callable[[], bool]
) -> None:
    """Run the ranks of a node other than 0 until node 0 has made the output.

    Raises `Interrupted` after a request to stop, and `SesameError` if a rank or node 0 fails.
    """
    number = 1
    with _reporting_loss(place):
        store = _connect(place)
        store.set(f"sesame/joined/{place.rank}", "")
    while not is_done():
        try:
            is_asked = store.check([f"sesame/launch/{number}"])
        except RuntimeError as error:
            if is_done():  # node 0 has finished and left
                return
            raise SesameError(
                f"node {place.rank}: the launcher on {place.address} has left; see its log; {AGAIN}"
            ) from error
        if not is_asked:
            time.sleep(LOOK_SECONDS)
            continue
        with _reporting_loss(place):
            meeting = _Meeting(store, place, number)
            port = store.get(f"sesame/launch/{number}").decode()
            variables = _variables(trainer, place, port)
            first = place.rank * trainer.devices
            rank, code = run_ranks(run_dir, variables, trainer.devices, first, meeting.failure)
            meeting.tell(code)
        if code == INTERRUPTED:
            raise Interrupted(f"node {place.rank}: interrupted; {AGAIN}")
        if code not in (0, DIVERGED):
            raise SesameError(f"node {place.rank}: rank {rank} failed with code {code}; {AGAIN}")
        number += 1

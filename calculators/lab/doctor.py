"""What this machine can do, each thing tried once; what is not tried here says so.

Nothing in this module is taken on trust: every kind of call is made by two real ranks on every backend and
device there is, and its result compared with what it must be. What ranks found is kept beside the ledger
for as long as torch, driver and GPUs stay the same.
"""

import json
import multiprocessing
import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from calculators.lab.devices import Devices, find_devices
from calculators.lab.lifeline import die_with_parent

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
COMBINATIONS = (("gloo", "cpu"), ("nccl", "cuda"), ("gloo", "cuda"))
"""Backend and device of the tensors; gloo with CUDA tensors is what staging through host memory avoids."""
_PROBE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that works here (`ok`) or does not; without what is `needed` no run can be done."""

    ok: bool
    text: str
    needed: bool = False

    def __str__(self) -> str:
        return f"{'✓' if self.ok else '✗' if self.needed else '–'} {self.text}"


def examine(ledger_url: str, *, fresh: bool = False) -> Iterator[Finding]:
    """Findings one by one, as they are made; `fresh` tries again what an earlier call has kept."""
    from calculators.lab.meters.findings import hardware_findings

    devices = find_devices()
    yield _python()
    yield Finding(
        ok=True,
        text=f"{devices.cpu}, {devices.cores} cores, {devices.memory_bytes / 2**30:.1f} GiB of memory",
    )
    if devices.gpus:
        names = ", ".join(f"{gpu.name} ({gpu.memory_bytes / 2**30:.0f} GiB)" for gpu in devices.gpus)
        yield Finding(ok=True, text=f"NVIDIA GPUs: {names}; driver {devices.driver}")
    else:
        yield Finding(ok=False, text=f"no NVIDIA GPU: {devices.no_gpu_reason}")
    yield _tcp_info()
    yield from _emulation()
    yield from hardware_findings(devices)
    yield _ledger(ledger_url)
    yield from _ranks(devices, kept_probes(ledger_url), fresh=fresh)


def kept_probes(ledger_url: str) -> Path:
    """Where the findings of ranks are kept: beside a SQLite ledger, else in the site's home."""
    from calculators.lab import database

    return database.folder_of(ledger_url) / "doctor.json"


def _python() -> Finding:
    version = platform.python_version()
    return Finding(
        ok=sys.version_info >= (3, 11),
        needed=True,
        text=f"Python {version}" + ("" if sys.version_info >= (3, 11) else ": 3.11 or newer is needed"),
    )


def _tcp_info() -> Finding:
    """Send 1,000 bytes to ourselves and see whether the kernel counted them where the wire meter looks."""
    if sys.platform != "linux":
        text = f"wire bytes cannot be measured: TCP_INFO is Linux's, and this is {platform.system()}"
        return Finding(ok=False, text=text)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as end,
    ):
        accepted, _ = server.accept()
        with accepted:
            end.sendall(bytes(1_000))
            left = 1_000
            while left:
                left -= len(accepted.recv(left))
            info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    sent = struct.unpack_from("=Q", info, 200)[0] if len(info) >= 216 else None
    if sent == 1_000:
        return Finding(ok=True, text="wire bytes can be measured: TCP_INFO counted 1,000 of 1,000 bytes sent")
    why = (
        f"TCP_INFO has only {len(info)} bytes"
        if sent is None
        else f"TCP_INFO counted {sent:,} of 1,000 bytes"
    )
    return Finding(ok=False, text=f"wire bytes cannot be measured: {why} (Linux 4.19 or newer counts them)")


_EMULATION = {
    "network namespaces": "hosts",
    "pyroute2": "what sets them up",
    "veth": "cables",
    "bridge": "the switch",
    "tbf": "the links' rates",
    "netem": "latency",
}


def _emulation() -> Iterator[Finding]:
    """Each part of emulated hosts, tried once by a process that ends with what it made."""
    if sys.platform != "linux":
        text = f"emulated hosts: network namespaces are Linux's, and this is {platform.system()}"
        yield Finding(ok=False, text=text)
        return
    trial = [sys.executable, "-m", "calculators.lab.emulation.trial"]
    try:
        said = subprocess.run(trial, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(ok=False, text=f"emulated hosts: {error}")
        return
    for line in said.stdout.splitlines():
        found = json.loads(line)
        what = f"emulated hosts: {found['part']} ({_EMULATION[found['part']]})"
        answer = "works" + (f", {found['text']}" if found["text"] else "")
        yield Finding(
            ok=found["works"],
            text=f"{what} {answer if found['works'] else 'cannot be had: ' + found['text']}",
        )
    if said.returncode:
        last = said.stderr.strip().splitlines()[-1:] or [f"exit code {said.returncode}"]
        yield Finding(ok=False, text=f"emulated hosts: the trial ended early: {last[0]}")


def _ledger(url: str) -> Finding:
    from calculators.lab import database

    try:
        shown, revision = database.inspect_ledger(url)
    except database.LedgerError as error:
        return Finding(ok=False, needed=True, text=str(error))
    if revision is None:
        return Finding(
            ok=True, needed=True, text=f"ledger {shown}: no tables yet; the first command makes them"
        )
    if revision != database.HEAD:
        text = f"ledger {shown}: revision {revision}; the next command brings it to {database.HEAD}"
        return Finding(ok=True, needed=True, text=text)
    return Finding(ok=True, needed=True, text=f"ledger {shown}: reachable, revision {revision}")


# What ranks find.


def _ranks(devices: Devices, kept: Path, *, fresh: bool) -> Iterator[Finding]:
    if devices.torch is None:
        text = "torch is not installed. Install the extra “lab”: pip install 'sixfold[lab]'"
        yield Finding(ok=False, needed=True, text=text)
        return
    key = _key(devices)
    known = {} if fresh else _read(kept, key)
    with _Prober() as prober:
        if "torch" not in known:
            known["torch"] = prober.ask(_about_torch)[0]
        about = known["torch"]
        works = about.startswith("torch ")
        text = f"{about}, imported by a fork server" if works else f"torch cannot be used: {about}"
        yield Finding(ok=works, needed=True, text=text)
        if not works:
            return
        for backend, device in COMBINATIONS:
            if reason := _why_not(backend, device, devices):
                yield Finding(ok=False, text=f"{backend} on {device}: not run here, {reason}")
                continue
            for op in OPS:
                name = f"{op} {backend} {device}"
                if name not in known:
                    known[name] = prober.probe(op, backend, device)
                    _write(kept, key, known)
                said = known[name]
                needed = (backend, device) == ("gloo", "cpu")
                yield Finding(
                    ok=said == "", needed=needed, text=f"{backend} on {device}: {op} {said or 'works'}"
                )


def _why_not(backend: str, device: str, devices: Devices) -> str:
    """Why this combination cannot be tried here; empty when it can."""
    if device != "cuda":
        return ""
    if not devices.gpus:
        return f"no NVIDIA GPU: {devices.no_gpu_reason}"
    if backend == "nccl" and len(devices.gpus) < 2:
        return "NCCL refuses two ranks on one GPU, and there is one (ranks talk through gloo then)"
    return ""


class _Prober:
    """Two ranks for each question, forked from a server that has torch imported already."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        # What the launcher preloads, too: a process has one fork server, and whoever comes first sets it up.
        self._context.set_forkserver_preload(["calculators.lab.preload"])

    def __enter__(self) -> "_Prober":
        self._folder = tempfile.TemporaryDirectory(prefix="sixfold-doctor-")
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def probe(self, op: str, backend: str, device: str) -> str:
        """Empty when both ranks got the right result; else what went wrong, as the end of a sentence."""
        rendezvous = str(Path(self._folder.name) / f"{op}-{backend}-{device}")
        answers = self.ask(_rank, op, backend, device, rendezvous, ranks=2)
        wrong = [answer for answer in answers if answer]
        return f"does not work: {wrong[0]}" if wrong else ""

    def ask(self, target: Callable[..., str], *arguments: Any, ranks: int = 1) -> list[str]:
        """What `target(rank, *arguments)` gives in a process for each rank; its error, or how it ended."""
        receivers, processes = [], []
        for rank in range(ranks):
            receiver, sender = self._context.Pipe(duplex=False)
            process = self._context.Process(
                target=_answer, args=(sender, target, rank, *arguments), daemon=True
            )
            process.start()
            sender.close()
            receivers.append(receiver)
            processes.append(process)
        try:
            answers = []
            for receiver, process in zip(receivers, processes, strict=True):
                try:
                    late = not receiver.poll(_PROBE_SECONDS)
                    answers.append(f"no answer in {_PROBE_SECONDS:.0f} s" if late else str(receiver.recv()))
                except EOFError:
                    process.join(5)
                    answers.append(f"its process ended with exit code {process.exitcode} and said nothing")
            return answers
        finally:
            for process in processes:
                process.kill()
                process.join()


def _answer(sender: Any, target: Callable[..., str], *arguments: Any) -> None:
    die_with_parent()
    try:
        said = target(*arguments)
    except Exception as error:
        first = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {first[0][:200] if first else ''}"
    sender.send(said)
    os._exit(0)  # communicators that failed may hang at shutdown


def _about_torch(rank: int) -> str:
    import torch
    import torch.distributed as dist

    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
    backends = [
        name
        for name, there in (("gloo", dist.is_gloo_available()), ("NCCL", dist.is_nccl_available()))
        if there
    ]
    return f"torch {torch.__version__}, {built}, with {' and '.join(backends) or 'no backend'}"


def _rank(rank: int, op: str, backend: str, device: str, rendezvous: str) -> str:
    """Make the call as one of two ranks; empty when its result is right."""
    import torch
    import torch.distributed as dist

    timeout = timedelta(seconds=_PROBE_SECONDS / 2)
    store = dist.PrefixStore("probe", dist.FileStore(rendezvous, 2))
    where = (
        torch.device(device, rank % max(torch.cuda.device_count(), 1))
        if device == "cuda"
        else torch.device(device)
    )
    if backend == "nccl":
        torch.cuda.set_device(where)
        group = dist.ProcessGroupNCCL(store, rank, 2)
    else:
        from calculators.lab.groups import on_gloo

        group = on_gloo(store, rank, 2, timeout)
    mine = torch.full((4,), float(rank + 1), device=where)  # rank 0 has ones, rank 1 twos
    if op == "all_reduce":
        group.allreduce([mine]).wait()
        got, wanted = mine, [3.0] * 4
    elif op == "all_gather":
        got = torch.zeros(8, device=where)
        group.allgather([list(got.chunk(2))], [mine]).wait()
        wanted = [1.0] * 4 + [2.0] * 4
    elif op == "reduce_scatter":
        got = torch.zeros(2, device=where)
        group._reduce_scatter_base(got, mine).wait()
        wanted = [3.0] * 2
    elif op == "all_to_all":
        got = torch.zeros(4, device=where)
        group.alltoall_base(got, mine, [], []).wait()
        wanted = [1.0] * 2 + [2.0] * 2
    elif op == "broadcast":
        group.broadcast([mine]).wait()
        got, wanted = mine, [1.0] * 4
    else:
        group.send([mine], 1, 0).wait() if rank == 0 else group.recv([mine], 0, 0).wait()
        got, wanted = mine, [1.0] * 4
    if device == "cuda":
        torch.cuda.synchronize()
    return "" if got.tolist() == wanted else f"rank {rank} got {got.tolist()}, not {wanted}"


def _key(devices: Devices) -> str:
    """What an answer of ranks depends on; when any of it changes, everything is tried again."""
    torch = devices.torch
    gpus = [gpu.name for gpu in devices.gpus]
    return json.dumps([devices.host, torch and [torch.version, torch.cuda], devices.driver, gpus])


def _read(kept: Path, key: str) -> dict[str, str]:
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
        return dict(found["said"]) if found["key"] == key else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write(kept: Path, key: str, said: dict[str, str]) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"key": key, "said": said}, indent=2), encoding="utf-8")
    except OSError:
        return  # a folder that cannot be written to only means trying again next time

"""What this machine offers to ranks, found without importing torch, and where a spec's ranks go on it."""

import importlib.util
import os
import platform
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from calculators.lab.emulation.network import Network
from calculators.lab.spec import Device, Problem, Spec, SpecError


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One NVIDIA GPU that processes started here may use."""

    index: int
    name: str
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Torch:
    """The torch that is installed: its version, and the CUDA it was built for (empty: a CPU build)."""

    version: str
    cuda: str


@dataclass(frozen=True, kw_only=True)
class Devices:
    """What one machine offers; `gpus` holds only those that the installed torch can use.

    Where `gpus` is empty, `no_gpu_reason` says why, as the end of “no NVIDIA GPU: …”.
    """

    host: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    no_gpu_reason: str = ""
    driver: str = ""
    torch: Torch | None = None

    @property
    def machine(self) -> str:
        """One line that tells two machines of a ledger apart."""
        gpus = ", ".join(f"{n} × {name}" if n > 1 else name for name, n in self._counted_gpus().items())
        return f"{self.host} ({self.cores} cores, {self.memory_bytes / 2**30:.1f} GiB, {gpus or 'no GPU'})"

    def _counted_gpus(self) -> dict[str, int]:
        names = [gpu.name for gpu in self.gpus]
        return {name: names.count(name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a run's ranks compute and what carries their messages.

    `staged`: tensors pass through host memory on their way, because the backend cannot take them from the
    device. `note` says in a sentence whatever a reader of the measurements must know about it.
    """

    device: str
    backend: str
    staged: bool = False
    note: str = ""


def find_devices() -> Devices:
    """What this machine has at this moment. Quick: no torch is imported and no CUDA context made."""
    torch = _installed_torch()
    gpus, driver, reason = _visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if gpus and not (torch and torch.cuda):
        found = f"{len(gpus)} × {gpus[0].name} found, but "
        reason = found + (f"torch {torch.version} is a CPU build" if torch else "torch is not installed")
        gpus = ()
    return Devices(
        host=socket.gethostname(),
        cpu=_cpu_name(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        no_gpu_reason=reason,
        driver=driver,
        torch=torch,
    )


def place(spec: Spec, devices: Devices) -> Placement:
    """Where the ranks of `spec` go on `devices`.

    A GPU for each rank: CUDA and NCCL. Fewer: NCCL refuses two ranks on one GPU, so they compute there and
    talk through gloo by way of host memory. None: CPU and gloo. Raises `SpecError` when CUDA was asked for
    by name and there is none.

    Ranks on emulated hosts always talk through gloo: NCCL would go around the links, from GPU to GPU.
    """
    placement = _placed(spec, devices)
    if spec.hosts == 1:
        return placement
    return replace(placement, note=f"{placement.note} {_about_hosts(spec)}".strip())


def _placed(spec: Spec, devices: Devices) -> Placement:
    if spec.device is Device.CPU:
        return Placement(device="cpu", backend="gloo")
    if not devices.gpus:
        if spec.device is Device.CUDA:
            message = (
                f"device is “cuda”, but this machine offers no NVIDIA GPU: {devices.no_gpu_reason}. "
                "Take “auto” or “cpu”."
            )
            raise SpecError([Problem("device", message)])
        note = f"No NVIDIA GPU ({devices.no_gpu_reason}): the ranks compute on the CPU and talk through gloo."
        return Placement(device="cpu", backend="gloo", note=note)
    if len(devices.gpus) >= spec.ranks:
        if spec.hosts > 1:
            note = (
                "NCCL would go around emulated links, from GPU to GPU: the ranks compute on GPUs, but every "
                "communicated tensor is staged through host memory and sent by gloo."
            )
            return Placement(device="cuda", backend="gloo", staged=True, note=note)
        return Placement(device="cuda", backend="nccl")
    gpus = "1 GPU" if len(devices.gpus) == 1 else f"{len(devices.gpus)} GPUs"
    note = (
        f"{spec.ranks} ranks share {gpus}, and NCCL refuses two ranks on one: they compute on the GPU, "
        "but every communicated tensor is staged through host memory and sent by gloo."
    )
    return Placement(device="cuda", backend="gloo", staged=True, note=note)


def _about_hosts(spec: Spec) -> str:
    """What is emulated, for readers of the measurements."""
    return f"{Network.of(spec)}: network namespaces of this machine, whose cores they share."


def usable_cores() -> int:
    """CPU cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _installed_torch() -> Torch | None:
    """Read from torch's own version.py: importing torch takes seconds, reading it a millisecond."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    try:
        text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    values = dict(re.findall(r"^(__version__|cuda)\s*(?::[^=]+)?=\s*'([^']*)'", text, re.MULTILINE))
    return Torch(version=values.get("__version__", "of an unknown version"), cuda=values.get("cuda", ""))


def _visible_gpus(visible: str | None) -> tuple[tuple[Gpu, ...], str, str]:
    """The GPUs that CUDA shows for this CUDA_VISIBLE_DEVICES; the driver's version; why there are none."""
    try:
        import pynvml
    except ImportError:
        return (), "", "the package nvidia-ml-py, which finds GPUs, is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if isinstance(error, pynvml.NVMLError_LibraryNotFound):
            return (), "", "the NVIDIA driver is not installed"
        return (), "", f"the NVIDIA driver says “{error}”"
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        gpus = {
            str(pynvml.nvmlDeviceGetUUID(handle)): Gpu(
                index=index,
                name=str(pynvml.nvmlDeviceGetName(handle)),
                memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for index, handle in enumerate(handles)
        }
    except pynvml.NVMLError as error:
        return (), "", f"the NVIDIA driver says “{error}”"
    finally:
        pynvml.nvmlShutdown()
    if not gpus:
        return (), driver, "the NVIDIA driver is installed but sees none"
    shown = chosen_gpus(gpus, visible)
    hidden = f"CUDA_VISIBLE_DEVICES is “{visible}”, which hides all {len(gpus)}"
    return shown, driver, "" if shown else hidden


def chosen_gpus(gpus: dict[str, Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """Those of `gpus` (by UUID) that CUDA_VISIBLE_DEVICES leaves visible, in its order.

    As CUDA reads it: indices or beginnings of UUIDs, and whatever follows the first that fits none is hidden.
    """
    if visible is None:
        return tuple(gpus.values())
    shown: list[Gpu] = []
    for word in map(str.strip, visible.split(",")):
        named = [gpu for uuid, gpu in gpus.items() if word and uuid.startswith(word)]
        fits = named or [gpu for gpu in gpus.values() if word == str(gpu.index)]
        if len(fits) != 1 or fits[0] in shown:
            break
        shown.append(fits[0])
    return tuple(shown)


def _cpu_name() -> str:
    try:
        names = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = None
    return names.group(1).strip() if names else platform.processor() or platform.machine()

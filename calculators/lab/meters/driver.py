"""The NVIDIA driver's answers (NVML) as the ends of sentences, and a way to its GPUs."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from calculators.lab.meters.problems import CannotSee


@contextmanager
def asked_for(what: str, gpu: int | None = None) -> Iterator[None]:
    """Turn what NVML raises inside into `CannotSee`, worded for `what` of the NVIDIA GPU with this index."""
    pynvml = _pynvml()
    try:
        yield
    except pynvml.NVMLError as error:
        raise CannotSee(why(error, what, gpu)) from error


def open_gpu(index: int) -> tuple[ModuleType, Any]:
    """NVML, started, and the GPU that it (not CUDA_VISIBLE_DEVICES) counts as `index`; else `CannotSee`.

    Whoever opens shuts down with `nvmlShutdown`: NVML counts.
    """
    pynvml = _pynvml()
    with asked_for("its GPUs"):
        pynvml.nvmlInit()
    try:
        count = pynvml.nvmlDeviceGetCount()
        if not 0 <= index < count:
            raise CannotSee(f"there is no GPU {index}: the NVIDIA driver counts {count}, from 0")
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        raise CannotSee(why(error, "its GPUs", index)) from error
    except CannotSee:
        pynvml.nvmlShutdown()
        raise


def why(error: Exception, what: str, gpu: int | None = None) -> str:
    """What this NVMLError means for `what`, as the end of a sentence."""
    pynvml = _pynvml()
    one = "the GPU" if gpu is None else f"GPU {gpu}"
    said = {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "the NVIDIA driver is not installed",
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
            "the NVIDIA driver is installed, but its kernel module is not loaded (modprobe nvidia, or restart)"
        ),
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the NVIDIA driver was updated and its old kernel module still runs; restart this machine"
        ),
        pynvml.NVML_ERROR_UNINITIALIZED: f"NVML was shut down before it was asked for {what}",
        pynvml.NVML_ERROR_NOT_SUPPORTED: f"{one} or its driver has no {what}",
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (
            f"this NVIDIA driver is too old to be asked for {what}; a newer one can be"
        ),
        pynvml.NVML_ERROR_NO_PERMISSION: (
            f"this user may not read {what}; root may, or allow it to all users in the NVIDIA driver"
        ),
        pynvml.NVML_ERROR_GPU_IS_LOST: (
            f"{one} has vanished: it fell off the bus or cannot be reached any more. Nothing that was measured on it "
            "counts; reset it or restart this machine, and run again"
        ),
        pynvml.NVML_ERROR_RESET_REQUIRED: f"{one} must be reset before it answers again (nvidia-smi --gpu-reset)",
        pynvml.NVML_ERROR_GPU_NOT_FOUND: f"{one} is not there any more",
    }
    return said.get(getattr(error, "value", None), f"asked for {what}, the NVIDIA driver says “{error}”")


def _pynvml() -> ModuleType:
    try:
        import pynvml
    except ImportError as error:
        raise CannotSee("the package nvidia-ml-py, which asks the NVIDIA driver, is not installed") from error
    module: ModuleType = pynvml
    return module

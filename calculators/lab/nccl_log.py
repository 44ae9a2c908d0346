"""What NCCL says of its own calls: the algorithm, protocol and channels that it chose, read from its log.

With NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=COLL writes a line a call on every rank, and TUNING one a choice on rank 0 of
a communicator. What a choice's line says depends on the version (NCCL's src/enqueue.cc at each tag):

    before 2.20   nothing
    2.20 to 2.22  4096 Bytes -> Algo 1 proto 2 time 12.3            no call; bytes of all ranks where it gathers
    2.23          AllGather: 4096 Bytes -> Algo 1 proto 2 time 12.3 bytes likewise
    2.24 and on   AllGather: 1024 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}    bytes of one rank
    2.27 and on   AllReduce [Symmetric]: 1024 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512
    2.29 and on   AllGather [Copy Engine]: 1024 Bytes -> cudaMemcpy

A choice is joined to the oldest call of its process that it fits: by name where it has one, and by bytes.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# The numbers of nccl_common.h, the same from 2.20 to 2.30.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_ELEMENT_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Of ncclDataType_t, by its number (nccl.h)."""
_FIRST_THAT_SAYS = (2, 20)
_COUNTED_FOR_ONE_RANK = ("ReduceScatter", "AlltoAll")
_CHOSEN_BY_ALL_RANKS = ("AllGather", "ReduceScatter")
"""Whose choice older versions make by the bytes of all ranks (ncclFuncMaxSendRecvCount)."""

_WIRE_FACTORS = {
    "SIMPLE": 1.0,
    "LL": 2.0,  # of 8 bytes 4 are data and 4 a flag: device.h, union ncclLLFifoLine
    "LL128": 128 / 120,  # of 16 words one is a flag: device.h, NCCL_LL128_DATAELEMS
}

_PROCESS = re.compile(r"(?P<host>[^\s:]+):(?P<pid>\d+):\d+ \[\d+\] NCCL INFO ")
_VERSION = re.compile(r"NCCL version (\d+)\.(\d+)\.(\d+)")
_CALL = re.compile(
    r"(?P<call>[A-Za-z]+): opCount (?P<op>[0-9a-f]+) sendbuff \S+ recvbuff \S+ count (?P<count>\d+) "
    r"datatype (?P<datatype>\d+) op \d+ root \d+ comm \S+ \[nranks=(?P<ranks>\d+)\]"
)
_BYTES = r"(?:(?P<call>[A-Za-z]+)(?: \[(?P<way>[A-Za-z ]+)\])?: )?(?P<bytes>\d+) Bytes -> "
_CHOICES = (
    re.compile(
        _BYTES + r"Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
        r"(?: time (?P<time>[\d.]+)| channel\{Lo\.\.Hi\}=\{(?P<lowest>\d+)\.\.(?P<highest>\d+)\})"
    ),
    re.compile(_BYTES + r"Kernel (?P<kernel>\w+) nchannels (?P<channels>\d+)"),
    re.compile(_BYTES + r"(?P<copy>cudaMemcpy|RMA proxy \+ CE)"),
)


@dataclass(frozen=True, kw_only=True)
class Called:
    """One call as NCCL was asked for it; `count_bytes` is None for a data type that this reader does not know."""

    process: str
    call: str
    count_bytes: int | None
    ranks: int

    @property
    def handed_bytes(self) -> int | None:
        """What the rank passed in: NCCL counts what a reduce-scatter gives each rank, and what each peer is sent."""
        if self.count_bytes is None:
            return None
        return self.count_bytes * (self.ranks if self.call in _COUNTED_FOR_ONE_RANK else 1)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """How NCCL carried a call out; empty or None is what its version does not say."""

    process: str
    call: str
    bytes: int
    algorithm: str
    protocol: str = ""
    channels: int | None = None


@dataclass(frozen=True, kw_only=True)
class NcclLog:
    """What was read of a log; `unread` has the lines that speak of a call or a choice in words not known here."""

    version: tuple[int, int, int] | None
    calls: tuple[Called, ...]
    choices: tuple[Chosen, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Named:
    """A kind of call with the way that NCCL took, and how often; `handed_bytes` is None where no call fits."""

    call: str
    handed_bytes: int | None
    algorithm: str
    protocol: str
    channels: int | None
    times: int

    def __str__(self) -> str:
        channels = "" if self.channels is None else f", {self.channels} channels"
        protocol = f", {self.protocol}" if self.protocol else ""
        return f"{self.algorithm}{protocol}{channels}"


def environment(folder: Path) -> dict[str, str]:
    """What a rank's environment must hold before its first communicator, for `folder` to hold a log a process."""
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "COLL,TUNING,ENV",
        "NCCL_DEBUG_FILE": str(folder / "nccl-%h-%p.log"),
    }


def read_log(lines: Iterable[str]) -> NcclLog:
    """The calls and choices in a log of one process or several, whatever stands around NCCL's own words."""
    version: tuple[int, int, int] | None = None
    calls: list[Called] = []
    choices: list[Chosen] = []
    unread: list[str] = []
    for line in lines:
        if found := _VERSION.search(line):
            version = int(found[1]), int(found[2]), int(found[3])
        if " opCount " not in line and " Bytes -> " not in line:
            continue
        spoke = _PROCESS.search(line)
        process = f"{spoke['host']}:{spoke['pid']}" if spoke else ""
        if call := _CALL.search(line):
            calls.append(_called(process, call))
        elif choice := next((found for shape in _CHOICES if (found := shape.search(line))), None):
            choices.append(_chosen(process, choice))
        else:
            unread.append(line.strip())
    return NcclLog(version=version, calls=tuple(calls), choices=tuple(choices), unread=tuple(unread))


def name_calls(log: NcclLog) -> tuple[Named, ...]:
    """Each kind of call with the way that NCCL took, in the order in which they first came."""
    waiting = list(log.calls)
    named: Counter[tuple[str, int | None, str, str, int | None]] = Counter()
    for choice in log.choices:
        one = next((call for call in waiting if _fits(choice, call)), None)
        if one is not None:
            waiting.remove(one)
        call = one.call if one else choice.call
        handed = one.handed_bytes if one else None
        named[call, handed, choice.algorithm, choice.protocol, choice.channels] += 1
    return tuple(
        Named(
            call=call, handed_bytes=handed, algorithm=algorithm, protocol=protocol, channels=channels, times=n
        )
        for (call, handed, algorithm, protocol, channels), n in named.items()
    )


def why_unnamed(log: NcclLog) -> str:
    """Why no algorithm can be named, as a sentence; empty when one can."""
    if log.choices:
        return ""
    if log.version and log.version[:2] < _FIRST_THAT_SAYS:
        return (
            f"NCCL {'.'.join(map(str, log.version))} does not say which algorithm a call took; 2.20 and newer do, "
            "with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=TUNING."
        )
    if log.unread:
        return (
            f"The log says how calls were made in words that this reader does not know: “{log.unread[0]}”. "
            "It knows those of NCCL 2.20 to 2.30."
        )
    if log.calls:
        return (
            f"The log has {len(log.calls)} calls and no choice of an algorithm. NCCL writes choices on rank 0 of a "
            "communicator only, with TUNING in NCCL_DEBUG_SUBSYS, and makes none for sends and receives."
        )
    return (
        "The log has no line of NCCL's about calls. Set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL,TUNING before the "
        "first communicator is made."
    )


def wire_factor(protocol: str) -> float:
    """Bytes that NCCL writes for each byte of payload, flags included, with this protocol."""
    try:
        return _WIRE_FACTORS[protocol.upper()]
    except KeyError:
        raise ValueError(
            f"“{protocol}” is no protocol of NCCL's with a known overhead; those are Simple, LL and LL128."
        ) from None


def _called(process: str, found: re.Match[str]) -> Called:
    count, datatype = int(found["count"]), int(found["datatype"])
    known = datatype < len(_ELEMENT_BYTES)
    return Called(
        process=process,
        call=found["call"],
        count_bytes=count * _ELEMENT_BYTES[datatype] if known else None,
        ranks=int(found["ranks"]),
    )


def _chosen(process: str, found: re.Match[str]) -> Chosen:
    said = found.groupdict()
    call, size = said["call"] or "", int(said["bytes"])
    if kernel := said.get("kernel"):
        # A symmetric kernel has no protocol, but its name says whether it writes LL's flags: …_AGxLL_R, …_LLMC.
        flags = re.search(r"(?:x|_)LL(?:MC)?(?:_|$)", kernel)
        return Chosen(
            process=process,
            call=call,
            bytes=size,
            algorithm=f"symmetric kernel {kernel}",
            protocol="LL" if flags else "",
            channels=int(said["channels"]),
        )
    if copy := said.get("copy"):
        return Chosen(process=process, call=call, bytes=size, algorithm=f"copy engine ({copy})")
    spans = said["lowest"] is not None
    return Chosen(
        process=process,
        call=call,
        bytes=size,
        algorithm=_name(said["algorithm"], _ALGORITHMS),
        protocol=_name(said["protocol"], _PROTOCOLS),
        channels=int(said["highest"]) - int(said["lowest"]) + 1 if spans else None,
    )


def _name(said: str, names: tuple[str, ...]) -> str:
    """A name as newer versions write it, or the one that stands for an older version's number."""
    if not said.isdigit():
        return said
    return names[int(said)] if int(said) < len(names) else f"number {said}"


def _fits(choice: Chosen, call: Called) -> bool:
    if call.process != choice.process or call.count_bytes is None:
        return False
    if choice.call and choice.call != call.call:
        return False
    of_all_ranks = call.count_bytes * (call.ranks if call.call in _CHOSEN_BY_ALL_RANKS else 1)
    return choice.bytes in (call.count_bytes, of_all_ranks)

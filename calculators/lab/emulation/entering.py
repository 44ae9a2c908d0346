"""Making and entering Linux namespaces: two system calls that Python 3.11 does not offer.

Every function concerns the calling thread; call them before a process has a second one.
"""

import ctypes
import os
from pathlib import Path

USER, NET = 0x1000_0000, 0x4000_0000  # CLONE_NEWUSER and CLONE_NEWNET, linux/sched.h


class Refused(OSError):
    """The kernel does not let this user make namespaces; the text says what to change."""


def enter(namespace: int, kind: int) -> None:
    """Go into the namespace that the descriptor `namespace` stands for."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, kind) != 0:
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


def leave_for_new(kind: int) -> None:
    """Go into a new namespace of this kind."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(kind) != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")


def network_namespace() -> int:
    """A descriptor of the network namespace this thread is in; while it is open, the namespace lives."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def user_namespace() -> int:
    """A descriptor of the user namespace this thread is in."""
    return os.open("/proc/thread-self/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def become_network_administrator() -> bool:
    """Go where network namespaces may be made: a new one, in a new user namespace when it takes one (True).

    Root stays who it is. Anybody else gets a user namespace, in which only its own id is known, as itself.
    Raises `Refused` with the kernel's answer when neither is allowed.
    """
    try:
        leave_for_new(NET)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        try:
            leave_for_new(USER | NET)
        except OSError as error:
            raise Refused(error.errno, why_refused(error)) from error
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        return True
    except OSError as error:
        raise Refused(error.errno, why_refused(error)) from error
    return False


def why_refused(error: OSError) -> str:
    """The kernel's answer and the settings that forbid namespaces here, as one sentence or two."""
    settings = (
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        ("user/max_net_namespaces", "0", "sysctl user.max_net_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    )
    said = f"This user may not make network namespaces: the kernel says “{os.strerror(error.errno or 0)}”."
    for name, forbids, remedy in settings:
        try:
            value = Path("/proc/sys", name).read_text().strip()
        except OSError:
            continue
        if value == forbids:
            shown = name.replace("/", ".")
            return f"{said} {shown} is {value}; let an administrator run `{remedy}`."
    return f"{said} Inside a container, its seccomp profile may forbid it: start it with --privileged, or run as root."

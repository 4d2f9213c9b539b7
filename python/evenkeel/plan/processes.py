"""Ranks as processes of this machine, or as processes that a launcher such as torchrun started."""

import ctypes
import os
import signal
import socket
import sys

from torch import multiprocessing

PATIENCE = 300  # seconds in which ranks must find each other, and in which an operation between them must end


class RankError(Exception):
    """A rank failed. The message says which and why."""


def given():
    """The rank and the number of ranks that a launcher such as torchrun gave this process, or None."""
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None


def start(main, args, world):
    """Runs main(args) in one process of this machine for each rank. If a rank fails, the others are killed and RankError is raised."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {"GLOO_SOCKET_IFNAME": "lo", **os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    import torch._dynamo  # else each process imports it for its first optimizer: seconds

    sys.stdout.flush()
    sys.stderr.flush()
    try:  # forked, so that each process has loaded PyTorch
        multiprocessing.start_processes(_rank, (main, args, env), world, daemon=True, start_method="fork")
    except multiprocessing.ProcessRaisedException as e:
        raise RankError("rank %d: %s" % (e.error_index, e.msg.strip().splitlines()[-1])) from None
    except multiprocessing.ProcessExitedException as e:
        raise RankError("rank %d: %s" % (e.error_index, e.msg)) from None
    return 0


def _rank(rank, main, args, env):
    os.environ.update(env, RANK=str(rank))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent
    main(args)

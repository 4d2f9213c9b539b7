"""Ranks as processes of this machine, or those that a launcher such as torchrun started."""

import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback

PATIENCE = 300  # seconds in which ranks must find each other, and an operation between them must end


class RankError(Exception):
    """A rank ended before the others; the message says which and why."""


def given():
    """The rank and number of ranks that a launcher such as torchrun gave this process; None where there is none."""
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None


def start(main, args, world):
    """Runs main(args) in processes of this machine, one for each of so many ranks. If one fails the others are killed, and its error is raised:
    a ValueError or OSError as it is, all else as RankError."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        env["GLOO_SOCKET_IFNAME"] = "lo"
    # Forked, so that each has PyTorch loaded: starting new processes would take most of a run.
    context = multiprocessing.get_context("fork")
    sys.stdout.flush()
    sys.stderr.flush()
    pipes, all = [], []
    try:
        for rank in range(world):
            here, there = context.Pipe(False)
            p = context.Process(target=_rank, args=(main, args, dict(env, RANK=str(rank)), there), daemon=True)
            p.start()
            there.close()
            pipes.append(here)
            all.append(p)
        while any(p.is_alive() for p in all) and not any(p.exitcode for p in all):
            time.sleep(0.01)
        _raise(all, pipes)
        return 0
    finally:
        for p in all:
            p.kill()
        for p in all:
            p.join()


def _rank(main, args, env, pipe):
    os.environ.update(env)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with the parent
    try:
        status = main(args)
    except KeyboardInterrupt:
        status = 130
    except BaseException as e:  # the parent reports it
        known = isinstance(e, (ValueError, OSError))
        pipe.send((type(e) if type(e) in (ValueError, OSError) else ValueError if known else RankError, str(e) if known else traceback.format_exception_only(type(e), e)[-1].strip()))
        status = 2
    sys.stdout.flush()
    pipe.close()
    os._exit(status)


def _raise(all, pipes):
    """Raises the error of the rank that failed first: the others only say that they lost a connection."""
    if not any(p.exitcode for p in all):
        return
    until, said = time.monotonic() + 2, {}
    while time.monotonic() < until and len(said) < len(all):
        for rank, pipe in enumerate(pipes):
            try:
                if rank not in said and pipe.poll():
                    said[rank] = pipe.recv()
            except EOFError:
                said[rank] = None
        time.sleep(0.02)
    lost = lambda text: "onnection" in text or "Socket" in text or "gloo" in text
    errors = sorted((lost(e[1]), rank) for rank, e in said.items() if e is not None)
    killed = [(rank, -p.exitcode) for rank, p in enumerate(all) if p.exitcode and p.exitcode < 0]
    if killed and (not errors or errors[0][0]):
        raise RankError("rank %d was ended by signal %d" % killed[0])
    if not errors:
        raise RankError("a rank ended with status %s" % [p.exitcode for p in all if p.exitcode][0])
    rank = errors[0][1]
    kind, text = said[rank]
    raise kind(text) if kind is not RankError else RankError("rank %d: %s" % (rank, text))

"""Ranks as processes of this machine, of several, or those that torchrun started."""

import ctypes
import multiprocessing
import os
import signal
import socket
import struct
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


def start(main, args, world, ranks=None, address=None):
    """Runs main(args) in processes of this machine, one for each rank of a world of so many: all, or ranks, where other machines have the others
    and rank 0 is reached at address (host, port). Where one fails the others here are ended, and its error is raised: a ValueError or OSError as
    it is, all else as RankError."""
    ranks = range(world) if ranks is None else ranks
    interface = "lo"
    if address is None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            address = s.getsockname()
    else:
        interface = interface_to(address)
        sys.stderr.write("waiting for the other ranks; rank 0 is reached at %s:%d\n" % tuple(address))
        if 0 not in ranks:
            _await(address)
    env = {"WORLD_SIZE": str(world), "MASTER_ADDR": address[0], "MASTER_PORT": str(address[1])}
    if interface and "GLOO_SOCKET_IFNAME" not in os.environ:
        env["GLOO_SOCKET_IFNAME"] = interface
    # Forked: each has PyTorch loaded.
    context = multiprocessing.get_context("fork")
    sys.stdout.flush()
    sys.stderr.flush()
    pipes, all = [], []
    try:
        for rank in ranks:
            here, there = context.Pipe(False)
            p = context.Process(target=_rank, args=(main, args, dict(env, RANK=str(rank)), there), daemon=True)
            p.start()
            there.close()
            pipes.append(here)
            all.append(p)
        while any(p.is_alive() for p in all):
            if any(p.exitcode for p in all):
                break
            time.sleep(0.01)
        _raise(ranks, all, pipes)
        return 0
    finally:
        for p in all:
            p.kill()
        for p in all:
            p.join()


def _await(address):
    """Returns when something listens at the address, so that machines may be started in any order."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(address, timeout=5).close()
            return
        except OSError as e:
            if time.monotonic() > until:
                raise RankError("rank 0 is not at %s:%d: %s" % (tuple(address) + (e,))) from e
            time.sleep(0.2)


def interface_to(address):
    """The network interface by which this machine reaches an address; None where it cannot be told."""
    try:
        import fcntl
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(address)  # sends nothing
            own = s.getsockname()[0]
            for _, name in socket.if_nameindex():
                try:
                    got = fcntl.ioctl(s.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
                except OSError:
                    continue  # it has no address
                if socket.inet_ntoa(got[20:24]) == own:
                    return name
    except (ImportError, OSError):
        pass
    return None


def _rank(main, args, env, pipe):
    os.environ.update(env)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not without the one who started it
    try:
        status = main(args)
    except KeyboardInterrupt:
        status = 130
    except BaseException as e:  # the parent says it
        known = isinstance(e, (ValueError, OSError))
        pipe.send((type(e) if type(e) in (ValueError, OSError) else ValueError if known else RankError, str(e) if known else traceback.format_exception_only(type(e), e)[-1].strip()))
        status = 2
    sys.stdout.flush()
    pipe.close()
    os._exit(status)


def _raise(ranks, all, pipes):
    """The error of the rank that failed first: the others lost it, and say that alone."""
    if not any(p.exitcode for p in all):
        return
    until, said = time.monotonic() + 2, {}
    while time.monotonic() < until and len(said) < len(all):
        for rank, pipe in zip(ranks, pipes):
            try:
                if rank not in said and pipe.poll():
                    said[rank] = pipe.recv()
            except EOFError:
                said[rank] = None
        time.sleep(0.02)
    lost = lambda text: "onnection" in text or "Socket" in text or "gloo" in text
    errors = sorted((lost(e[1]), rank) for rank, e in said.items() if e is not None)
    killed = [(rank, -p.exitcode) for rank, p in zip(ranks, all) if p.exitcode and p.exitcode < 0]
    if killed and (not errors or errors[0][0]):
        raise RankError("rank %d was ended by signal %d" % killed[0])
    if not errors:
        raise RankError("a rank ended with status %s" % [p.exitcode for p in all if p.exitcode][0])
    rank = errors[0][1]
    kind, text = said[rank]
    raise kind(text) if kind is not RankError else RankError("rank %d: %s" % (rank, text))

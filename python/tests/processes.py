"""Jobs of several processes on this machine, for tests."""

import contextlib
import multiprocessing
import os
import random
import signal
import socket

import fake_service


def free_port():
    """One below those that the kernel hands out by itself: nobody else is given it before a job listens on it."""
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)):
                return port


def run(test, ranks, child, killed=None, beside=None):
    """Runs child(rank, port) in a process for each rank, until all have ended well. killed: the rank that is to be killed by SIGKILL
    itself; the others are killed then, with what they have started, as torchrun does. beside: is called meanwhile."""
    import torch._dynamo  # else each child imports it for its first optimizer: seconds

    port = free_port()
    context = multiprocessing.get_context("fork")  # importing torch takes long

    def start(rank):
        torch.set_num_threads(1)  # OpenMP's threads do not outlive a fork, and a child that wants them waits for ever
        child(rank, port)

    procs = [context.Process(target=start, args=(r,)) for r in range(ranks)]
    for p in procs:
        p.start()
    try:
        if killed is not None:
            procs[killed].join(timeout=120)
            test.assertEqual(procs[killed].exitcode, -signal.SIGKILL)
            return
        if beside is not None:
            beside()
        for p in procs:
            p.join(timeout=120)
        test.assertEqual([p.exitcode for p in procs], [0] * ranks)
    finally:
        for p in procs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)  # where a child leads a group of its own
            p.kill()
            p.join()


def served(test, ranks, decide, child, **environment):
    """Runs child(rank) in a process for each rank, as torchrun starts it, with a service that decides. Returns that."""
    service = fake_service.Service(decide)
    test.addCleanup(service.stop)

    def start(rank, port):
        import torch

        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), EVENKEEL_URL=service.url, **environment)
        child(rank)
        torch.distributed.barrier()

    run(test, ranks, start)
    return service

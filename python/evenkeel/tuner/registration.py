"""How the ranks of a job make themselves known to the service, once: rank 0 for all of them."""

import atexit
import dataclasses
import logging
import os
import socket
import uuid
from typing import Any

import torch
import torch.distributed as dist

from . import client
from .errors import Usage
from .local import LocalClient


_log = logging.getLogger("evenkeel")


@dataclasses.dataclass
class Found:
    client: client.Client | LocalClient | None  # of the service, on rank 0; LocalClient on each rank, if they decide by themselves
    first: client.Plan | None  # its first sizes, if it had them soon; the same on all ranks
    serving: bool  # whether somebody decides
    timed: bool  # whether rounds are to have a deadline
    most: list[int]  # the largest micro-batch of each rank, 0: any


def register(same: dict[str, Any], limits: dict[str, Any], device: torch.device, group: Any, local: bool, micro_steps: int = 0) -> Found:
    """Registers the job. same are the arguments that must be equal on all ranks; limits are those of this rank's micro-batch. local: without
    a service the ranks decide. micro_steps: of each rank in each round, 0: as many as its share needs."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    everyone: list[Any] = [None] * ranks
    dist.all_gather_object(everyone, (same, describe(rank, limits, device)), group=group)
    for r, (other, _) in enumerate(everyone):
        wrong = [f"{k} {other[k]} on rank {r}, {v} on rank 0" for k, v in everyone[0][0].items() if other[k] != v]
        if wrong:
            raise Usage(f"batches() has {'; '.join(wrong)}: pass the same on all ranks")
    described = [d for _, d in everyone]
    own: client.Client | LocalClient | None = None
    answer: tuple[client.Plan | None, bool, bool, bool] = (None, False, False, False)
    if rank == 0 and os.environ.get("EVENKEEL_URL"):
        seen: dict[str, int] = {}
        for d in described:  # containers may bear one name
            n = seen[d["name"]] = seen.get(d["name"], 0) + 1
            d["name"] += f"#{n}" if n > 1 else ""
        body = {"id": uuid.uuid4().hex, "global_batch": same["global_batch"], "deadline": same["deadline"], "ranks": described}
        if micro_steps:
            body["equal_steps"] = micro_steps
        job = os.environ.get("EVENKEEL_JOB") or "job"
        connection = client.Connection(os.environ["EVENKEEL_URL"], os.environ.get("EVENKEEL_TOKEN", ""), os.environ.get("EVENKEEL_CA", ""), ranks, job)
        own = client.Client(connection, job, body)
        own.start()
        atexit.register(own.close)
        first = own.wait(client.TIMEOUT)
        answer = first, True, own.timed, False
    elif rank == 0 and local and ranks > 1:
        _log.warning("evenkeel: EVENKEEL_URL is not set; the ranks find their sizes without a service")
        answer = None, True, False, True
    answers: list[Any] = [None] * ranks
    dist.all_gather_object(answers, answer, group=group)
    first, serving, timed, alike = answers[0]
    most = [d["micro_batch"]["most"] for d in described]
    if alike:
        own = LocalClient(same["global_batch"], most, micro_steps)
        first = own.newest
    return Found(own, first, serving, timed, most)


def describe(rank: int, limits: dict[str, Any], device: torch.device) -> dict[str, Any]:
    name, memory, host = "cpu", 0, socket.gethostname()
    if device.type == "cuda":
        name, memory = torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device).total_memory
    return {"name": f"{host}/{os.environ.get('LOCAL_RANK', rank)}", "host": host, "device": name, "memory_bytes": memory, "micro_batch": limits}

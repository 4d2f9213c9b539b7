"""A job for test_elastic.py, under torchrun: elastic_job.py FOLDER ROUND. In the first start rank 1 is killed in the midst of that round, after its first micro-step. Rank 0
saves after every round which samples were used, with the tuner's state, and writes each start's first shares."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import evenkeel

LENGTH, PACES = 600, (0.0005, 0.0005, 0.004)


def main(folder, fatal):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks, start = dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(1)
    x = torch.randn(LENGTH, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True), torch.arange(LENGTH))
    net = torch.nn.Linear(4, 1)
    ddp = DDP(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    tuner = evenkeel.Tuner(ddp)
    path = os.path.join(folder, "job.pt")
    used, rounds = [], 0
    if os.path.exists(path):
        saved = torch.load(path)
        used, rounds = saved["used"], saved["rounds"]
        net.load_state_dict(saved["net"])
        tuner.load_state_dict(saved["tuner"])
    batches = tuner.batches(LENGTH, global_batch=30, micro_batch=4)
    loader = torch.utils.data.DataLoader(data, batch_sampler=batches)
    first = batches.plan(0).shares
    own = []
    for inputs, targets, places in tuner.steps(loader):
        if tuner.counts:
            own += places.tolist()
        time.sleep(PACES[rank % 3] * len(inputs))
        torch.nn.functional.mse_loss(ddp(inputs), targets).backward()
        if rank == 1 and not start and rounds == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        if tuner.synchronised:
            optimizer.step()
            optimizer.zero_grad()
            rounds += 1
            everyone = [None] * ranks
            dist.all_gather_object(everyone, own)
            own = []
            if rank == 0:
                used += [i for some in everyone for i in some]
                torch.save({"used": used, "rounds": rounds, "net": net.state_dict(), "tuner": tuner.state_dict()}, path + ".new")
                os.replace(path + ".new", path)
    tuner.close()
    if rank == 0:
        torch.save({"used": used, "rounds": rounds, "start": start, "first": first, "weight": net.weight.detach()}, os.path.join(folder, "end.pt"))
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

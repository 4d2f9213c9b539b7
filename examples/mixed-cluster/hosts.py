"""Hosts on one machine, for experiments: network namespaces, joined by a switch that delays packets and limits what each host sends. Linux, as root.

    with Hosts(3, delay=0.005, bandwidth=12.5e6) as hosts:
        hosts.start(0, "python", "train.py")          # subprocess.Popen, within the first host
"""

import contextlib
import ctypes
import fcntl
import heapq
import multiprocessing
import os
import select
import signal
import struct
import subprocess
import time

MTU = 9000
QUEUE = 0.2  # seconds that packets may wait for the bandwidth; later ones are dropped, as by a full buffer


class Hosts:
    """delay: seconds of one way; bandwidth: bytes a second that a host sends; receives: that it receives."""

    def __init__(self, count, delay=0.0, bandwidth=125e6, receives=float("inf")):
        self.names = [f"evenkeel-{os.getpid()}-{i}" for i in range(count)]
        self.delay, self.bandwidth = multiprocessing.Array("d", [delay] * count, lock=False), multiprocessing.Array("d", [bandwidth] * count, lock=False)
        self.receives = multiprocessing.Array("d", [receives] * count, lock=False)
        self._running = []
        for i, name in enumerate(self.names):
            _ip("netns", "add", name)
            _ip("netns", "exec", name, "ip", "tuntap", "add", "ek0", "mode", "tun")
            for words in (["link", "set", "lo", "up"], ["link", "set", "ek0", "mtu", str(MTU), "up"], ["addr", "add", f"{self.address(i)}/24", "dev", "ek0"]):
                _ip("-n", name, *words)
        self._switch = multiprocessing.get_context("fork").Process(target=self._forward, daemon=True)
        self._switch.start()

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def start(self, host, *command, **arguments):
        """The command within a host: subprocess.Popen."""
        self._running.append(subprocess.Popen(["ip", "netns", "exec", self.names[host], *command], **arguments))
        return self._running[-1]

    def signal(self, host, number, among=lambda command: True):
        """To the processes of a host. among chooses them by their command line, whose words are joined by zeros."""
        for pid in subprocess.run(["ip", "netns", "pids", self.names[host]], capture_output=True, text=True).stdout.split():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                with open(f"/proc/{pid}/cmdline") as f:
                    command = f.read()
                if among(command):
                    os.kill(int(pid), number)

    def close(self):
        for host in range(len(self.names)):
            self.signal(host, signal.SIGKILL)  # those that were started by others, too
        for p in self._running:
            p.kill()
            p.wait()
        self._switch.kill()
        self._switch.join()
        for name in self.names:
            _ip("netns", "delete", name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _forward(self):
        """Passes packets on, each when its sender's line has had time for it and the delay is over."""
        ends = [_device(name) for name in self.names]
        free, taken, coming, number = [0.0] * len(ends), [0.0] * len(ends), [], 0
        while True:
            now = time.monotonic()
            while coming and coming[0][0] <= now:
                _, _, to, packet = heapq.heappop(coming)
                os.write(ends[to], packet)
            ready, _, _ = select.select(ends, [], [], max(coming[0][0] - now, 0) if coming else None)
            for end in ready:
                host, packet, now = ends.index(end), os.read(end, MTU + 64), time.monotonic()
                to = packet[19] - 1 if packet[0] >> 4 == 4 else -1  # the last byte of an IPv4 packet's destination
                if not 0 <= to < len(ends) or free[host] > now + QUEUE:
                    continue
                free[host] = max(free[host], now) + len(packet) / self.bandwidth[host]
                arrives = free[host] + self.delay[host]
                if self.receives[to] < float("inf"):  # right where delays are equal: packets are taken in the order in which they were sent
                    if taken[to] > arrives + QUEUE:
                        continue
                    arrives = taken[to] = max(taken[to], arrives) + len(packet) / self.receives[to]
                number += 1
                heapq.heappush(coming, (arrives, number, to, packet))


def _ip(*words):
    subprocess.run(["ip", *words], check=True)


def _device(name):
    """The switch's end of a host's device. A file stays with the namespace that it was opened in."""
    libc, own = ctypes.CDLL(None, use_errno=True), os.open("/proc/self/ns/net", os.O_RDONLY)
    other = os.open(f"/run/netns/{name}", os.O_RDONLY)
    end = None
    for space in (other, own):
        if libc.setns(space, 0):
            raise OSError(ctypes.get_errno(), "setns")
        if end is None:
            end = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(end, 0x400454CA, struct.pack("16sH", b"ek0", 0x1001))  # TUNSETIFF; IFF_TUN | IFF_NO_PI
    os.close(other), os.close(own)
    return end

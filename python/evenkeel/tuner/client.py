"""The connection to the service, in a thread of its own on rank 0: reports go out, sizes come back. Training steps do not wait for it. While the
service is gone, hangs or answers nonsense, the newest sizes stay.

The contract is the service's OpenAPI document; bodies are JSON, times seconds.
"""

import collections
import dataclasses
import http.client
import json
import logging
import math
import os
import random
import ssl
import threading
import time
import urllib.parse
import zlib
from typing import Any, Dict, List, Optional

_log = logging.getLogger("evenkeel")

TIMEOUT = 2.0  # seconds, of every call
# An answer may have _MOST bytes and _EACH more for each rank, and come in _READS small pieces: parsing megabytes of JSON would hold up the training thread.
_MOST, _EACH, _READS = 64 << 10, 1 << 10, 512
_DECISION = 0.003  # seconds that the service has for a decision
_PAUSE, _LONGEST = 0.1, 5.0  # seconds before a call is repeated, at first and at last


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sizes of all ranks, in rank order."""

    number: int  # 0: not the service's
    shares: List[int]
    micro_batches: List[int]
    deadline: float = 0.0  # seconds of a round; 0: work off the share
    reserve: float = 0.0
    whole: bool = False
    overtime: float = 0.0
    seconds: List[float] = dataclasses.field(default_factory=list)  # of work until the deadline, by rank
    micro_step: List[float] = dataclasses.field(default_factory=list)  # predicted seconds of a full micro-step
    least: List[int] = dataclasses.field(default_factory=list)  # smallest micro-batch
    era: int = 0  # how often the client had registered: a service that was restarted numbers its plans anew


def uniform(global_batch: int, micro_batches: List[int]) -> Plan:
    """Equal shares: what a job without the service runs."""
    ranks = len(micro_batches)
    shares = [global_batch // ranks + (r < global_batch % ranks) for r in range(ranks)]
    return Plan(0, shares, [min(m, s) if m else s for m, s in zip(micro_batches, shares)])


class News:
    """The newest plan of a client (None: nobody decides), once. told is the one that is known already."""

    def __init__(self, of: Any, told: Optional[Plan]):
        self._of, self._told = of, told

    def take(self) -> Optional[Plan]:
        newest = self._of.newest if self._of is not None else None
        told, self._told = self._told, newest
        return newest if newest != told else None


def _whole(x: Any, least: int, most: int = 1 << 30) -> int:
    if isinstance(x, bool) or not isinstance(x, int) or not least <= x <= most:
        raise ValueError(f"{x!r} is no whole number from {least} to {most}")
    return x


def _number(x: Any, above: float) -> float:
    if isinstance(x, bool) or not isinstance(x, (int, float)) or not math.isfinite(x) or x < above:
        raise ValueError(f"{x!r} is no number from {above}")
    return float(x)


def plan(sizes: Any, names: List[str], era: int = 0) -> Plan:
    """The plan in a sizes file of version 3 that the service handed out; ValueError if it is not one for these ranks."""
    try:
        if sizes["version"] != 3 or [n["name"] for n in sizes["nodes"]] != names:
            raise ValueError(f"it has sizes of version {sizes['version']} for ranks {[n['name'] for n in sizes['nodes']]}, where version 3 for {names} is expected")
        number, nodes, of_all = _whole(sizes["plan"], 1), sizes["nodes"], sizes.get("deadline")
        shares = [_whole(n["share"], 0) for n in nodes]
        micro = [_whole(n["micro_batch"], 1 if n["share"] else 0) for n in nodes]
        if not sum(shares):
            raise ValueError("no rank has a share")
        if of_all is None:
            return Plan(number, shares, micro, era=era)
        own = [n.get("deadline") if n["share"] else {"seconds": 1.0, "micro_step_seconds": 1.0, "least": 1} for n in nodes]
        tiny = 1e-9
        return Plan(
            number, shares, micro, _number(of_all["seconds"], tiny), _number(of_all["reserve"], 0), of_all["micro_steps"] == "whole", _number(of_all.get("overtime", 0.0), 0),
            [_number(o["seconds"], tiny) for o in own], [_number(o["micro_step_seconds"], tiny) for o in own], [_whole(o["least"], 1) for o in own], era,
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"it has no sizes: {e!r}") from e


def _said(status: int, answer: Any) -> str:
    """The words of problem details (RFC 9457): what is wrong with which field, else the summary; the status where there are none."""
    if not isinstance(answer, dict):
        return f"status {status}"
    errors = answer.get("errors")
    fields = [e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
    each = [f"{str(e.get('location') or '').replace('body.', '', 1)} {e.get('message') or ''}".strip() for e in fields]
    return ("; ".join(filter(None, each)) or str(answer.get("detail") or answer.get("title") or f"status {status}"))[:500]


class Gone(Exception):
    """The service did not answer, or not as agreed."""


class Connection:
    """Calls to the service, over one connection that is kept open. url may be a list, separated by commas, of services that share a journal: the
    job's name decides which comes first, so that all of its ranks call the same one, and jobs are spread over the services."""

    def __init__(self, url: str, token: str = "", ca: str = "", ranks: int = 1, job: str = ""):
        self._most = _MOST + _EACH * ranks
        self._urls = [urllib.parse.urlsplit(u.strip()) for u in url.split(",")]
        for u in self._urls:
            if u.scheme not in ("http", "https") or not u.hostname:
                raise ValueError(f"EVENKEEL_URL {url!r}: give http://HOST:PORT or https://HOST:PORT, or several of them, separated by commas")
        self._at = zlib.crc32(job.encode()) % len(self._urls)
        self.turns = len(self._urls)  # calls of turn after which each service was called
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        self._context = ssl.create_default_context(cafile=ca or None) if any(u.scheme == "https" for u in self._urls) else None
        if self._context and os.environ.get("EVENKEEL_CERT"):
            self._context.load_cert_chain(os.environ["EVENKEEL_CERT"], os.environ.get("EVENKEEL_KEY") or None)
        self._kept: Optional[http.client.HTTPConnection] = None

    def turn(self) -> None:
        """The next call goes to the next service."""
        if self.turns > 1:
            self.close()
        self._at = (self._at + 1) % len(self._urls)

    @property
    def shown(self) -> str:
        """The service that the next call goes to, for messages."""
        url = self._urls[self._at]
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path.rstrip('/')}"

    def call(self, method: str, path: str, body: Any) -> "tuple[int, Any]":
        """Status and decoded body. Gone if there is none within TIMEOUT."""
        try:
            return self._call(method, path, b"" if body is None else json.dumps(body, allow_nan=False).encode())
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.close()
            what = "the answer is nonsense" if isinstance(e, ValueError) else "no answer"
            raise Gone(f"{what}: {getattr(e, 'strerror', None) or str(e) or type(e).__name__}") from e

    def _call(self, method: str, path: str, body: bytes) -> "tuple[int, Any]":
        url = self._urls[self._at]
        if self._kept is None:
            host, port, tls = url.hostname or "", url.port, self._context if url.scheme == "https" else None
            self._kept = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=tls) if tls else http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        until = time.monotonic() + TIMEOUT
        self._kept.request(method, url.path.rstrip("/") + path, body, self._headers)
        response, read, pieces = self._kept.getresponse(), b"", 0
        while some := response.read1(1 << 16):  # a time-out holds for one read: an answer that trickles would never end
            read, pieces = read + some, pieces + 1
            if time.monotonic() > until or len(read) > self._most or pieces > _READS + len(read) // _EACH:
                raise ValueError(f"the answer is too long or too slow: {len(read)} bytes in {pieces} pieces, and no end")
        if response.will_close:
            self.close()
        response.close()  # else the connection takes no further request
        return response.status, json.loads(read) if read else None

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


class Client(threading.Thread):
    """The thread that talks to the service. registration is the body that begins a generation; newest is the newest plan, None before the first; counts
    says what happened."""

    def __init__(self, connection: Connection, job: str, registration: Dict[str, Any], room: int = 64):
        super().__init__(name="evenkeel", daemon=True)
        self._connection, self._registration = connection, registration
        self._path = f"/v1/jobs/{urllib.parse.quote(job, safe='')}"
        self._names = [r["name"] for r in registration["ranks"]]
        self._reports: collections.deque = collections.deque()
        self._room, self._random = room, random.Random(registration["id"])  # jobs that lost one service do not come back all at once
        self._changed = threading.Condition()  # held for moments, never in a call: the training thread takes it
        self._closed, self._era = False, 0
        self._undecided = self._awaited = False  # sizes by the newest report are not there yet; the training thread waits for them
        self.generation: Optional[int] = None
        self.newest: Optional[Plan] = None
        self.timed = False  # whether the job's rounds are to have a deadline, which comes with sizes once every rank was measured
        self.counts: collections.Counter = collections.Counter()
        self.problem = ""  # the newest one

    def _note(self, count: str, problem: str, service: str) -> None:
        """Counts failures and logs the first of each kind, because a job that is not tuned otherwise looks well."""
        self.counts[count] += 1
        self.problem = problem
        if self.counts[count] == 1:
            _log.warning("evenkeel: %s: %s; the job goes on with %s", service, problem, "the newest sizes" if self.newest else "equal shares")

    def offer(self, report: Dict[str, Any], ran: Plan) -> None:
        """Hands in the report of a round that ran by this plan, without waiting. If too many reports wait, the oldest is dropped."""
        with self._changed:
            if ran.number < 1 or ran.era != self._era:  # the service cannot know these sizes
                self.counts["unasked"] += 1
                return
            if len(self._reports) >= self._room:
                self._reports.popleft()
                self.counts["dropped"] += 1
            self._reports.append(report)
            self._undecided = True
            self._changed.notify_all()

    def decided(self, seconds: float) -> None:
        """Waits until the newest report has led to sizes, for at most so many seconds."""
        with self._changed:
            self._awaited = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._undecided or self._closed, seconds)
            self._awaited = False

    def wait(self, seconds: float) -> Optional[Plan]:
        """The first plan, if it comes within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.newest or self._closed, seconds)
        return self.newest

    def close(self, seconds: float = 0.5) -> None:
        """Ends the thread once the reports are handed in, or after so many seconds."""
        with self._changed:
            if self.generation is not None:
                self._changed.wait_for(lambda: not self._reports, seconds)
            self._closed = True
            self._changed.notify_all()

    def run(self) -> None:
        pause, failed = _PAUSE, 0
        while not self._closed:
            try:
                self._next()
                pause, failed = _PAUSE, 0
            except Gone as e:
                failed += 1
                service = self._connection.shown
                self._connection.turn()
                with self._changed:
                    self._note("failed", str(e), service)
                    if failed % self._connection.turns:
                        continue  # another service may be well
                    self._changed.wait_for(lambda: self._closed, pause * self._random.uniform(0.5, 1.5))
                pause = min(2 * pause, _LONGEST)
        self._connection.close()

    def _next(self) -> None:
        """Registers, or hands in the oldest report; waits for one."""
        if self.generation is None:
            status, answer = self._connection.call("POST", self._path + "/generations", self._registration)
            if status not in (200, 201):
                raise Gone(f"the registration was refused: {_said(status, answer)}")
            status, job = self._connection.call("GET", self._path, None)
            self.timed = status == 200 and isinstance(job, dict) and bool(job.get("deadline"))
            self._era += 1
            self._take(answer)
            with self._changed:
                self.generation = _whole(answer["generation"], 0)
                self._reports.clear()  # they rest on plans that this service does not know
            return
        with self._changed:
            self._changed.wait_for(lambda: self._reports or self._closed)
            if self._closed:
                return
            report = self._reports[0]
        status, answer = self._connection.call("POST", self._path + "/reports", {"generation": self.generation, **report})
        if status == 409:  # the service was restarted, and knows this generation no more
            self.generation = None
            raise Gone(f"a report was refused: {_said(status, answer)}")
        if status >= 500 or status == 429:
            raise Gone(f"a report was refused: {_said(status, answer)}")
        with self._changed:
            if self._reports and self._reports[0] is report:
                self._reports.popleft()
            self._changed.notify_all()
        if status != 200:  # nobody will take this report
            self._note("refused", f"a report was refused: {_said(status, answer)}", self._connection.shown)
            return
        self.counts["reports"] += 1
        self._take(answer)
        with self._changed:
            if self._changed.wait_for(lambda: self._reports or self._closed or self._awaited, _DECISION) and not self._awaited:
                return
        status, sizes = self._connection.call("GET", self._path + "/sizes?format=json", None)  # the answer did not wait for what the report leads to
        if status == 200:
            self._take({"sizes": sizes})
            self.counts["decisions"] += 1
        with self._changed:
            self._undecided = bool(self._reports)
            self._changed.notify_all()

    def _take(self, answer: Any) -> None:
        try:
            _whole(answer.get("generation", 0), 0)
            new = plan(answer["sizes"], self._names, self._era)
            if sum(new.shares) > self._registration["global_batch"]:
                raise ValueError(f"its sizes have {sum(new.shares)} samples a round, more than the global batch of {self._registration['global_batch']}")
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise Gone(f"the answer is not one of the service's: {e}") from e
        with self._changed:
            if self.newest is None or new != self.newest:
                self.newest = new
            self._changed.notify_all()

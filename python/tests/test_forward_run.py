"""Runs over NATS: torch processors alone and with Go's, that die and come back, a server that restarts, and messages that do not belong."""

import contextlib
import itertools
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
import unittest.mock

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))

import forward_rank  # noqa: E402
from evenkeel import forward  # noqa: E402
from evenkeel.forward import nats, record, rounds, run  # noqa: E402
from processes import free_port  # noqa: E402

EVENKEEL = os.environ.get("EVENKEEL")


class Rank:
    """A torch processor in a process of its own, forked, as importing torch takes long."""

    def __init__(self, folder, a):
        self._out = os.path.join(folder, f"rank{a['rank']}.{time.monotonic_ns()}")
        self._process = multiprocessing.get_context("fork").Process(target=self._run, args=(a,))
        self._process.start()

    def _run(self, a):
        try:
            text, code = forward_rank.join(a), 0
        except BaseException:
            text, code = traceback.format_exc(), 1
        with open(self._out, "w", encoding="utf-8") as f:
            f.write(text)
        os._exit(code)

    def kill(self):
        self._process.kill()
        self._process.join()

    def communicate(self):
        """Exit status, and what it printed."""
        self._process.join(120)
        with open(self._out, encoding="utf-8") as f:
            return self._process.exitcode, f.read()


class Cable:
    """Carries connections to a port, late if that is asked for, until those of now are to be silent."""

    def __init__(self, to, late=0.0):
        self._listening, self._to, self._late, self._silent, self._all = socket.create_server(("127.0.0.1", 0)), to, late, set(), []
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                here = self._listening.accept()[0]
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            self._all += [here, there]
            for a, b in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, a, b):
        try:
            while data := a.recv(1 << 16):
                time.sleep(self._late)
                if a not in self._silent:
                    b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def silence(self):
        self._silent = set(self._all)

    def close(self):
        for s in (self._listening, *self._all):
            s.close()


@unittest.skipUnless(EVENKEEL, "EVENKEEL names no program")
class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.port, self.started = folder.name, free_port(), []
        self.addCleanup(self.stop)
        self.scheme, self.serving = "nats", []
        self.size = 8

    def stop(self):
        for p in self.started:
            p.kill()
            if isinstance(p, subprocess.Popen):
                p.communicate()

    def start(self, *args, **kw):
        p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, **kw)
        self.started.append(p)
        return p

    def serve(self):
        p = self.start(EVENKEEL, "forward", "serve", "--store", "store", "--listen", f"127.0.0.1:{self.port}", *self.serving)
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                if p.poll() is not None or time.monotonic() > until:
                    self.fail(f"the server does not come: {p.communicate()[1]}")
                time.sleep(0.05)
        with open(os.path.join(self.folder, "store", "tokens"), encoding="utf-8") as f:
            self.tokens = dict(line.split() for line in f)
        self.url = f"{self.scheme}://localhost:{self.port}"
        return p

    def create(self, **fields):
        c = forward.Config(**{"processors": 4, "key": 5, "steps": 200, "examples": [4], **fields})
        parts = [forward.Part(n, t) for n, t in forward_rank.network(self.size).items()]
        raw = forward.prepare(c, 2000, parts)
        self.assertTrue(forward.create(self.url, "run", raw, self.tokens["launch"], self.ca()))
        return raw, parts

    def ca(self):
        return ""

    def rank(self, rank, **more):
        a = {"url": self.url, "run": "run", "rank": rank, "size": self.size, "token": self.tokens[f"rank{rank}"], "ca": self.ca(), **more}
        self.started.append(Rank(self.folder, a))
        return self.started[-1]

    def result(self, p):
        if isinstance(p, Rank):
            code, out = p.communicate()
            self.assertEqual(code, 0, out)
        else:
            out, err = p.communicate(timeout=120)
            self.assertEqual(p.returncode, 0, err)
        return json.loads(out)

    def stream(self, token="launch"):
        c = nats.Connection(self.url, self.tokens[token], token, self.ca())
        self.addCleanup(c.close)
        return c, nats.Stream(c, "EVENKEEL_run")

    def steps_reached(self, at):
        """Waits until the frames of this step are in the stream."""
        c, s = self.stream()
        s.read(2, "evenkeel.forward.run.frame.0")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for _, _, data in s.take(1)[0]:
                if rounds.read_frame(data)[0] >= at:
                    return
        self.fail(f"step {at} is not reached")

    def test_join_kill_and_a_server_that_restarts(self):
        server = self.serve()
        raw, _ = self.create(steps=700)
        ps = [self.rank(r, wait=0.001) for r in range(3)]
        ps.append(self.rank(3, wait=0.001))
        self.steps_reached(100)
        ps[1].kill()
        self.steps_reached(200)
        ps[1] = self.rank(1, wait=0.001)
        self.steps_reached(300)
        server.kill()
        server.communicate()
        time.sleep(0.3)
        self.serve()
        results = [self.result(p) for p in ps]
        self.assertEqual(len({r["hash"] for r in results}), 1, results)
        self.assertEqual({r["steps"] for r in results}, {700})
        self.assertIn("0", results[0]["absent"])  # the pair of the rank that was killed
        # Anybody rebuilds the weights from the stream's blocks.
        out = subprocess.run([EVENKEEL, "forward", "export", "run", "--url", self.url, "--log", "run.log"], cwd=self.folder, env={**os.environ, "EVENKEEL_NATS_TOKEN": self.tokens["launch"]}, capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr)
        parts = [forward.Part(n, t) for n, t in forward_rank.network(self.size).items()]
        self.assertEqual(forward.replay(os.path.join(self.folder, "run.log"), parts).hash(), results[0]["hash"])

    def test_go_and_torch_in_one_run(self):
        self.serve()
        env = {**os.environ, "EVENKEEL_NATS_TOKEN": self.tokens["launch"]}
        launch = self.start(EVENKEEL, "forward", "launch", "-n", "4", "--url", self.url, "--run", "run", "--steps", "5000", "--size", "8", env=env)
        until = time.monotonic() + 30
        while True:
            try:
                self.stream()[1].message(1)
                break
            except (forward.Refused, forward.Disconnected):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.1)

        def go(rank):
            return self.start(EVENKEEL, "forward", "join", "--url", self.url, "--run", "run", "--rank", str(rank), "--json", env={**os.environ, "EVENKEEL_NATS_TOKEN": self.tokens[f"rank{rank}"]})

        torches, gos = {1: self.rank(1, stop_at=448), 2: self.rank(2)}, {0: go(0), 3: go(3)}
        self.steps_reached(150)
        torches[2].kill()
        gos[0].kill()
        time.sleep(0.5)
        torches[2], gos[0] = self.rank(2), go(0)
        results = [self.result(p) for p in (*torches.values(), *gos.values())]
        hashes = {r.get("hash", r.get("weights_hash")) for r in results}
        self.assertEqual(len(hashes), 1)
        steps = {r["steps"] for r in results}  # rank 1 asked to stop after 448
        self.assertEqual(len(steps), 1)
        self.assertTrue(448 < min(steps) < 4999 and min(steps) % 64 == 0, steps)
        out, err = launch.communicate(timeout=60)
        self.assertEqual(launch.returncode, 0, err)
        subprocess.run([EVENKEEL, "forward", "export", "run", "--url", self.url, "--log", "run.log"], cwd=self.folder, env=env, check=True)
        out = subprocess.run([EVENKEEL, "forward", "replay", "run.log", "--json"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertIn(hashes.pop(), out.stdout)
        late = self.result(self.rank(1))  # who comes when it is over has the same end
        self.assertEqual({late["steps"]}, steps)
        show = subprocess.run([EVENKEEL, "forward", "runs", "run", "--url", self.url], cwd=self.folder, env=env, capture_output=True, text=True)
        self.assertIn(f"{min(steps)} of 5000, stopped", show.stdout, show.stderr)

    def test_over_tls_with_a_token_for_each_rank(self):
        cert, key = os.path.join(self.folder, "cert.pem"), os.path.join(self.folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        self.scheme, self.serving = "tls", ["--cert", cert, "--key", key]
        self.ca = lambda: cert
        self.serve()
        self.create(processors=2, steps=70)
        ps = [self.rank(r) for r in range(2)]
        self.assertEqual(len({self.result(p)["hash"] for p in ps}), 1)
        with self.assertRaisesRegex(forward.Refused, "authority"):
            nats.Connection(self.url, self.tokens["rank0"], "rank0")
        with self.assertRaisesRegex(forward.Denied, "Authorization"):
            nats.Connection(self.url, self.tokens["rank0"], "rank1", cert)
        with self.assertRaises(forward.Refused):
            nats.Connection(self.url.replace("tls", "nats"), self.tokens["rank0"], "rank0")
        # A rank's token is good for that rank's subjects alone.
        c, _ = self.stream("rank0")
        c.publish("evenkeel.forward.run.frame.1", rounds.frame(0, 1, rounds.LOSSES))
        with self.assertRaisesRegex(forward.Denied, "ermissions"):
            c.poll(5)
            c.poll(5)

    def test_messages_that_do_not_belong(self):
        self.serve()
        self.create(steps=130)
        c, _ = self.stream()
        for subject, data in (
            ("frame.0", b"x"), ("frame.0", b""), ("frame.1", rounds.frame(0, 0, rounds.LOSSES, (9.0, 9.0))), ("frame.77", rounds.frame(0, 77, rounds.LOSSES)), ("frame.x", b"x"),
            ("block.0.1", b"x"), ("block.9.1", b"x" * 100), ("block.0.2", bytes(200)), ("result.0", b"x"), ("other", b"x"), ("frame.2", rounds.frame(5, 2, rounds.GO_ON)),
        ):  # fmt: skip
            c.publish("evenkeel.forward.run." + subject, data)
        c.poll(0.2)
        results = [self.result(p) for p in [self.rank(r) for r in range(4)]]
        self.assertEqual(len({r["hash"] for r in results}), 1, results)
        self.assertEqual({r["steps"] for r in results}, {130})

    def test_a_rank_whose_losses_are_no_numbers(self):
        self.serve()
        self.create(steps=70)
        results = [self.result(p) for p in [self.rank(r, bad=r == 1) for r in range(4)]]
        self.assertEqual(len({r["hash"] for r in results}), 1, results)
        self.assertEqual(set(results[0]["left_out"]), {"0"}, results)  # rank 1's pair

    def test_another_block_stops_the_run_by_name(self):
        self.serve()
        raw, parts = self.create(processors=2, steps=64)
        # A block that is valid in itself, of frames that were not these.
        r = forward.Replica(raw, parts)
        for j in range(64):
            for k in range(2):
                block = r.put(k, rounds.frame(j, k, rounds.LOSSES, (1.0 + k, 2.0)))
        ps = [self.rank(r, wait=0.01) for r in range(2)]
        self.steps_reached(5)
        c, _ = self.stream()
        c.publish("evenkeel.forward.run.block.0.1", block)
        c.poll(0.2)
        for p in ps:
            code, out = p.communicate()
            self.assertNotEqual(code, 0)
            self.assertIn("rank 1 sent another block 0", out)

    def test_a_server_whose_disk_is_full(self):
        self.serve()
        self.create(processors=2, steps=1000)
        c, _ = self.stream()
        info = c.api("STREAM.INFO.EVENKEEL_run")
        answer = c.api("STREAM.UPDATE.EVENKEEL_run", {**info["config"], "max_bytes": info["state"]["bytes"]})  # room for the message of neither rank
        self.assertNotIn("error", answer)
        for p in [self.rank(r, patience=3) for r in range(2)]:
            code, out = p.communicate()
            self.assertEqual(code, 1)
            self.assertRegex(out, r"the broker's storage is full \(maximum bytes exceeded\).*; gave up after 3 s")
            self.assertNotIn("connection lost", out)

    def test_a_full_broker_ends_patience_though_messages_come(self):
        p = run._Processor("nats://h", "run", 0, None, [], "", "", 3, None)
        p._stream = unittest.mock.Mock()
        for position, answer in ((1, {"error": {"err_code": 10077, "description": "maximum bytes exceeded"}}), (2, {"seq": 2})):
            p._trouble, p._unacknowledged = p._trouble or 7.0, {"inbox": ("subject", b"", time.monotonic())}
            p._stream.take.return_value, p._stream.answers.return_value = ([(position, "s", b"")], True), {"inbox": answer}
            with self.assertRaises(nats.Full) if position == 1 else contextlib.nullcontext():
                p._receive(0)
        self.assertEqual(p._trouble, 7.0)

    def cable(self, late=0.0):
        c = Cable(self.port, late)
        self.addCleanup(c.close)
        return c, f"nats://localhost:{c.port}"

    def test_a_server_that_answers_late(self):
        self.serve()
        raw, _ = self.create(processors=2, steps=30)
        ps = [self.rank(0, url=self.cable(late=0.05)[1]), self.rank(1)]
        torch.set_num_threads(1)
        w = forward_rank.network(self.size)
        alone = forward.train(raw, [forward.Part(n, t) for n, t in w.items()], forward_rank.loss(w))
        self.assertEqual({self.result(p)["hash"] for p in ps}, {alone.hash()})

    def test_a_connection_that_falls_silent(self):
        """Without an end that could be seen, as when a machine loses power."""
        self.serve()
        self.create(processors=2, steps=300)
        cable, url = self.cable()
        with unittest.mock.patch.object(nats, "HEARTBEAT", 0.5):
            ps = [self.rank(0, wait=0.005), self.rank(1, url=url)]
        self.steps_reached(30)
        cable.silence()
        results = [self.result(p) for p in ps]
        self.assertEqual(len({r["hash"] for r in results}), 1, results)
        self.assertEqual({r["steps"] for r in results}, {300})

    def test_a_run_that_is_another_models(self):
        self.serve()
        self.create()
        w = forward_rank.network(9)
        with self.assertRaisesRegex(forward.Refused, "tensor 0 'dense1.weight': shape"):
            forward.join(self.url, "run", 0, None, [forward.Part(n, t) for n, t in w.items()], token=self.tokens["rank0"])
        with self.assertRaisesRegex(forward.Refused, "rank 4"):
            forward.join(self.url, "run", 4, None, [forward.Part(n, t) for n, t in forward_rank.network(8).items()], token=self.tokens["rank4"])
        with self.assertRaisesRegex(forward.Refused, "not found"):
            forward.join(self.url, "none", 0, None, [forward.Part(n, t) for n, t in w.items()], token=self.tokens["rank0"], patience=1)
        self.assertFalse(forward.create(self.url, "run", record.read_start(self.stream()[1].message(1)[1])[0], self.tokens["launch"]))


class Silence(unittest.TestCase):
    def test_four_heartbeats_are_waited_for(self):
        p = run._Processor("", "run", 0, None, [], "", "", 1.0, None)
        p._stream = unittest.mock.Mock()
        p._stream.answers.return_value = {}
        clock = itertools.count()  # a second for each look at it: one for each wait
        with unittest.mock.patch.object(run.time, "monotonic", lambda: float(next(clock))):
            for i in range(300):
                p._stream.take.return_value = [], i % 15 == 0
                p._receive(1)
            p._stream.take.return_value = [], False
            with self.assertRaisesRegex(forward.Disconnected, "silent for 20 s"):
                for _ in range(21):
                    p._receive(1)


class Server(unittest.TestCase):
    """What a server may say, without one."""

    def connect(self, *lines, scheme="nats"):
        """A connection to a server that greets and then says these lines."""
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)

        def serve():
            s, _ = listening.accept()
            with s:
                for line in lines:
                    s.sendall(line)
                s.settimeout(5)
                try:
                    while s.recv(4096):
                        pass
                except OSError:
                    pass

        threading.Thread(target=serve, daemon=True).start()
        c = nats.Connection(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}", "secret", "rank0", timeout=2)
        self.addCleanup(c.close)
        return c

    def test_greetings(self):
        for lines, what in (
            ((b"HTTP/1.1 400\r\n",), forward.Refused), ((b"",), forward.Disconnected), ((b"INFO {\r\n",), forward.Disconnected), ((b"x" * 100_000,), forward.Disconnected),
            ((b"INFO {}\r\n", b"-ERR 'Authorization Violation'\r\n"), forward.Denied), ((b'INFO {"tls_required":true}\r\n',), forward.Refused),
        ):  # fmt: skip
            with self.assertRaises(what, msg=lines) as e:
                self.connect(*lines)
            self.assertNotIn("secret", str(e.exception))
        with self.assertRaises(forward.Disconnected):
            nats.Connection(f"nats://127.0.0.1:{free_port()}")
        for url in ("127.0.0.1", "http://h", "nats://u:secret@h"):
            with self.assertRaises(forward.Refused):
                nats.Connection(url)

    def test_messages_in_pieces(self):
        reply = "$JS.ACK.s.c.1.77.1.99.5"
        whole = f"MSG a 2 {reply} 3\r\nabc\r\nPING\r\nHMSG b 2 {reply} 12 14\r\nNATS/1.0\r\n\r\nhi\r\nMSG c 2 0\r\n\r\n".encode()
        for cut in range(1, len(whole), 5):
            c = self.connect(b"INFO {}\r\nPONG\r\n", whole[:cut], whole[cut:])
            until = time.monotonic() + 5
            while len(c.queue) < 3 and time.monotonic() < until:
                c.poll(0.1)
            self.assertEqual([(m.subject, m.data) for m in c.queue], [("a", b"abc"), ("b", b"hi"), ("c", b"")])
            self.assertEqual(c.queue[0].position(), 77)
            self.assertIsNone(c.queue[2].position())
        long = "$JS.ACK.domain.hash.s.c.1.77.1.99.5.token"
        self.assertEqual(nats.Message(1, "a", long, b"", b"").position(), 77)

    def test_sizes_that_are_too_large(self):
        for line in (b"MSG a 2 99999999\r\n", b"HMSG a 2 9 5\r\n", b"x" * 100_000):
            c = self.connect(b"INFO {}\r\nPONG\r\n", line)
            with self.assertRaises(forward.Disconnected):
                for _ in range(50):
                    c.poll(0.1)


if __name__ == "__main__":
    unittest.main()

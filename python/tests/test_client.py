"""python3 -m unittest discover -s python/tests, from the repository's root. The client against a service that is well, gone, hanging or mad."""

import os
import sys
import threading
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch

import fake_service
from evenkeel.tuner import client, round_vector

NAMES = ["a/0", "b/0"]


def until(what, seconds=30.0):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.005)
    return what()


class TestClient(unittest.TestCase):
    def setUp(self):
        self.timeout = client.TIMEOUT
        client.TIMEOUT = 1.0
        self.service = fake_service.Service(lambda reports, _: ([4, 4],) if len(reports) < 2 else ([6, 2],))
        self.started = []

    def tearDown(self):
        client.TIMEOUT = self.timeout
        for c in self.started:
            c.close(0)
        self.service.stop()

    def client(self, begin=True, **options):
        body = {"id": "x", "global_batch": 8, "deadline": "", "ranks": [{"name": n} for n in NAMES]}
        c = client.Client(client.Connection(self.service.url, **options), "my job", body)
        self.started.append(c)
        if begin:
            c.start()
        return c

    def report(self, c, number):
        ran = c.newest
        c.offer({"round": number, "plan": ran.number, "wait_seconds": 1.0, "ranks": [{"seconds": 1.0, "samples": 2}] * 2}, ran)

    def test_sizes_follow_reports(self):
        c = self.client(token="secret")
        self.assertEqual(c.wait(5).shares, [4, 4])
        path, body, authorization = self.service.registered[0]
        self.assertEqual((path, body["id"], authorization), ("/v1/jobs/my%20job/generations", "x", "Bearer secret"))
        self.report(c, 0)
        self.report(c, 1)
        self.assertTrue(until(lambda: c.newest.shares == [6, 2]))
        self.assertEqual([r["round"] for r in self.service.reports], [0, 1])  # and none after them, whose answer would hold the new sizes
        self.assertEqual((c.newest.number, c.counts["reports"]), (2, 2))

    def test_who_waits_for_a_decision_has_it(self):
        """However long the client would leave the service alone; and no longer than it was told to where the service hangs."""
        c = self.client()
        c.wait(5)
        self.service.decide = lambda reports, _: ([6 - len(reports), 2 + len(reports)],)
        with mock.patch.object(client, "_DECISION", 60.0):
            for k in (1, 2, 3):
                self.report(c, k)
                c.decided(20)
                self.assertEqual(c.newest.shares, [6 - k, 2 + k])
        self.service.mode = "hang"
        self.report(c, 4)
        began = time.monotonic()
        c.decided(0.05)
        self.assertLess(time.monotonic() - began, 0.5)

    def test_bad_times(self):
        """Whatever the service does, the newest sizes stay, offer() returns at once, and all is well again afterwards."""
        c = self.client()
        kept = c.wait(5)
        for mode in ("hang", "trickle", "flood", "nonsense", "absurd", "too much", "huge", "busy", "gone"):
            with self.subTest(mode):
                if mode == "gone":
                    self.service.stop()
                else:
                    self.service.mode = mode
                failed, began = c.counts["failed"], time.monotonic()
                for k in range(200):
                    self.report(c, k)
                self.assertLess(time.monotonic() - began, 0.1)
                self.assertTrue(until(lambda: c.counts["failed"] > failed), c.counts)
                self.assertLess(time.monotonic() - began, 7 * client.TIMEOUT)  # the trickle takes ten
                self.assertEqual(c.newest, kept)
                if mode == "gone":
                    self.service.start()
                self.service.mode = "good"
                self.service.decide = lambda *_: ([4, 4],)
                self.assertTrue(until(lambda: not c._reports), c.problem)
        self.assertGreater(c.counts["dropped"], 100)
        self.service.decide = lambda *_: ([5, 3],)
        self.report(c, 7)
        self.assertTrue(until(lambda: c.newest.shares == [5, 3]), c.problem)

    def test_nothing_is_read_that_takes_long(self):
        """While Python reads JSON no other thread of it runs: an answer of megabytes is given up, before that."""
        c, most = self.client(), []
        c.wait(5)
        real = client.json.loads
        with mock.patch.object(client.json, "loads", lambda b: most.append(len(b)) or real(b)):
            for mode in ("huge", "flood", "good"):
                self.service.mode, failed = mode, c.counts["failed"]
                self.report(c, len(most))
                self.assertTrue(until(lambda: c.counts["failed"] > failed if mode != "good" else not c._reports), c.counts)
        self.assertTrue(most and max(most) < 50_000, most)  # the flood is of 60,000 bytes
        # What it takes to read is bounded by the ranks; sizes of 4,096 have room.
        names = [f"host-{r:04d}.example/{r % 8}" for r in range(4096)]
        body = fake_service.json.dumps(fake_service.sizes(names, 12345, [100] * 4096, None, (0.123456789, [0.0123456789] * 4096)))
        self.assertLess(len(body), client.Connection("http://x", ranks=4096)._most)
        # Such an answer may come packet by packet.
        packets = [body.encode()[k : k + 1400] for k in range(0, len(body), 1400)]
        self.assertGreater(len(packets), client._READS)
        got = mock.Mock(status=200, will_close=False, read1=mock.Mock(side_effect=[*packets, b""]))
        with mock.patch.object(client.http.client, "HTTPConnection", lambda *_, **__: mock.Mock(getresponse=lambda: got)):
            self.assertEqual(client.Connection("http://x", ranks=4096).call("GET", "/", None)[1]["plan"], 12345)

    def test_no_lock_is_held_in_a_call(self):
        """The training thread takes this lock in offer(): whatever a call waits for, it does not wait for that."""
        test = self

        class Slow(client.Connection):
            calls = blocked = 0

            def call(self, method, path, body):
                taken = []

                def take():
                    taken.append(c._changed.acquire(timeout=5) and (c._changed.release() or True))

                other = threading.Thread(target=take)
                other.start()
                other.join()
                Slow.calls, Slow.blocked = Slow.calls + 1, Slow.blocked + (taken != [True])
                return super().call(method, path, body)

        c = client.Client(Slow(test.service.url), "job", {"id": "x", "global_batch": 8, "ranks": [{"name": n} for n in NAMES]})
        self.started.append(c)
        c.start()
        self.assertTrue(c.wait(20))
        for k in range(3):
            self.report(c, k)
        self.assertTrue(until(lambda: not c._reports))
        self.service.mode = "nonsense"
        self.report(c, 3)
        self.assertTrue(until(lambda: c.counts["failed"] > 0))
        self.assertGreater(Slow.calls, 5)
        self.assertEqual(Slow.blocked, 0)

    def test_service_without_memory(self):
        """409: it registers anew, with the same id, and reports of the plans before are not handed in."""
        c = self.client()
        old = c.wait(5)
        self.service.mode = "forgot"
        self.report(c, 0)
        self.assertTrue(until(lambda: len(self.service.registered) == 2 and c.newest is not old))
        self.assertEqual(self.service.registered[0][1], self.service.registered[1][1])
        c.offer({"round": 1, "plan": old.number, "ranks": []}, old)
        self.assertEqual(c.counts["unasked"], 1)
        self.report(c, 2)
        self.assertTrue(until(lambda: [r["round"] for r in self.service.reports] == [2]))

    def test_who_is_not_tuned_is_told_so(self):
        """Once, with the service's own words."""
        self.service.mode = "refuse"
        with self.assertLogs("evenkeel", "WARNING") as said:
            c = self.client()
            self.assertTrue(until(lambda: c.counts["failed"] > 1))
        self.assertEqual(len(said.output), 1, said.output)
        self.assertEqual(said.output[0], f"WARNING:evenkeel:evenkeel: {self.service.url}: the registration was refused: the token is wrong; the job goes on with equal shares")
        self.assertIsNone(c.newest)

    def test_words_of_the_service(self):
        """What is wrong with which field, else the summary, of whatever the answer is."""
        field = {"location": "body.deadline", "message": 'is "soon"'}
        for answer, want in [
            ({"detail": "no", "errors": [field, {"message": "late"}, 3]}, 'deadline is "soon"; late'), ({"title": "Conflict", "detail": "no"}, "no"), ({"title": "Conflict"}, "Conflict"),
            ({"errors": 5}, "status 422"), ({"errors": [{"location": 7}]}, "7"), ([], "status 422"), (None, "status 422"), ({"detail": 9000 * "x"}, 500 * "x"),
        ]:  # fmt: skip
            self.assertEqual(client._said(422, answer), want)

    def test_gone_after_sizes(self):
        """The service's name without what is secret in it, no Python, and that there were sizes."""
        c = self.client()
        c.wait(5)
        self.service.stop()
        with self.assertLogs("evenkeel", "WARNING") as said:
            self.report(c, 0)
            self.assertTrue(until(lambda: c.counts["failed"] > 0))
        self.assertRegex(said.output[0], rf"^WARNING:evenkeel:evenkeel: {self.service.url}: no answer: [^(){{}}]+; the job goes on with the newest sizes$")
        self.assertEqual(client.Connection("http://me:secret@x:1/y/").shown, "http://x:1/y")

    def test_calls_get_rarer(self):
        """While the service is gone: twice as long after every failure, up to a bound, and from the beginning again after a success."""
        pauses = []

        class Factor(float):
            def __rmul__(self, pause):
                pauses.append(pause)
                return 0.0

        self.service.stop()
        c = self.client(begin=False)
        c._random = mock.Mock(uniform=lambda least, most: Factor())
        c.start()
        self.assertTrue(until(lambda: len(pauses) > 12))
        with mock.patch.object(c._connection, "call", side_effect=[(201, {"generation": 1, "sizes": fake_service.sizes(NAMES, 1, [4, 4])}), (200, {}), *100_000 * [client.Gone("again")]]):
            self.assertTrue(c.wait(20))
            at = len(pauses)
            self.report(c, 0)
            self.assertTrue(until(lambda: len(pauses) > at + 2))
            c.close(0)
            c.join()
        self.assertEqual(pauses[:9], [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
        self.assertIn([0.1, 0.2], [pauses[k : k + 2] for k in range(9, len(pauses))])

    def test_service_that_comes_later(self):
        self.service.stop()
        c = self.client()
        self.assertIsNone(c.wait(0.1))
        self.service.start()
        self.assertEqual(c.wait(5).shares, [4, 4])

    def test_the_oldest_report_is_dropped(self):
        c = client.Client(client.Connection(self.service.url), "job", {"id": "x", "global_batch": 1, "ranks": []}, room=2)
        for k in range(5):
            c.offer({"round": k}, client.Plan(1, [1], [1]))
        self.assertEqual(([r["round"] for r in c._reports], c.counts["dropped"]), ([3, 4], 3))

    def test_another_service(self):
        """Of several services the next one is called when one is gone, hangs or has no journal, at once; when all are, calls get rarer."""
        other = fake_service.Service(lambda *_: ([5, 3],))
        try:
            c = client.Client(client.Connection(f"{self.service.url} , {other.url}"), "job", {"id": "x", "global_batch": 8, "ranks": [{"name": n} for n in NAMES]})
            self.started.append(c)
            self.service.mode = "hang"
            c.start()
            began = time.monotonic()
            self.assertEqual(c.wait(20).shares, [5, 3])
            self.assertLess(time.monotonic() - began, client.TIMEOUT + 0.5)
            self.report(c, 0)
            self.assertTrue(until(lambda: not c._reports))
            self.assertEqual([len(s.registered) for s in (self.service, other)], [0, 1])  # it stays where it is
            self.service.mode = "good"
            self.service.names, self.service.old = NAMES, {1: ([4, 4],)}  # what they share
            for stop in (other.stop, lambda: setattr(other, "mode", "nonsense")):
                stop()
                began = time.monotonic()
                self.report(c, 1)
                self.assertTrue(until(lambda: not c._reports), c.problem)
                self.assertLess(time.monotonic() - began, 0.5)
                other.start() if stop == other.stop else None
        finally:
            other.stop()

    def test_jobs_spread(self):
        """Every client of a job begins with the same service, and the jobs take all of them."""
        urls = ",".join(f"http://h{k}:1" for k in range(3))
        first = [client.Connection(urls, job=f"job-{k}")._at for k in range(300)]
        self.assertEqual(first, [client.Connection(urls, job=f"job-{k}")._at for k in range(300)])
        self.assertGreater(min(first.count(k) for k in range(3)), 60)
        self.assertEqual(client.Connection(urls, job="job")._at, 0xfbd8e0f8 % 3)  # CRC-32, as evenkeel workers has it

    def test_url(self):
        for url in ("localhost:7070", "ftp://x", "http://", "http://a,", "http://a,b:1"):
            with self.assertRaisesRegex(ValueError, "give http://HOST:PORT"):
                client.Connection(url)


class TestPlan(unittest.TestCase):
    def test_nonsense(self):
        good = fake_service.sizes(NAMES, 3, [5, 0], [2, 2], (1.5, [0.2, 0.4]))
        self.assertEqual(client.plan(good, NAMES), client.Plan(3, [5, 0], [2, 0], 1.5, 0.0, False, 0.0, [1.5, 1.0], [0.2, 1.0], [1, 1]))
        bad = [
            None, [], {}, {**good, "version": 4}, {**good, "plan": 0}, {**good, "plan": True}, {**good, "nodes": good["nodes"][:1]}, {**good, "nodes": good["nodes"][::-1]},
            {**good, "deadline": {**good["deadline"], "seconds": 0}}, {**good, "deadline": {**good["deadline"], "reserve": float("nan")}},
        ]  # fmt: skip
        for key, value in [("share", -1), ("share", 2.5), ("share", 1 << 40), ("share", 0), ("micro_batch", 0), ("deadline", None), ("deadline", {"seconds": float("inf"), "micro_step_seconds": 1, "least": 1})]:
            bad.append({**good, "nodes": [{**good["nodes"][0], key: value}, good["nodes"][1]]})
        for b in bad:
            with self.assertRaises(ValueError, msg=b):
                client.plan(b, NAMES)

    def test_uniform(self):
        p = client.uniform(7, [0, 2])
        self.assertEqual((p.shares, p.micro_batches, p.number), ([4, 3], [4, 2], 0))


class TestVector(unittest.TestCase):
    def test_there_and_back(self):
        timed = client.Plan(12, [5, 0, 9], [2, 0, 3], 1.5, 0.02, True, 0.1, [1.4, 1.0, 1.3], [0.2, 1.0, 0.3], [1, 1, 2], 2)
        for plan in (None, timed, client.Plan(3, [5, 0, 9], [2, 0, 3], era=1)):
            vectors = [round_vector.RoundVector(r, 3) for r in range(3)]
            did = [round_vector.Did(0.5 + r, 10 * r, r, 0.25 * r, 0, 7 + r, link=0.5 * r) for r in range(3)]
            v = sum(vectors[r].pack(did[r], plan if r == 0 else None, r == 0) for r in range(3))
            self.assertEqual(round_vector.unpack(v.tolist(), 3), (did, plan, True))
            self.assertEqual(float(v[round_vector.norm_of(2)]), 0.5)
            self.assertEqual((len(v), float(v[round_vector.norm_before(3)])), (round_vector.length(3), 0.0))
            self.assertEqual(v.dtype, torch.float64)


if __name__ == "__main__":
    unittest.main()

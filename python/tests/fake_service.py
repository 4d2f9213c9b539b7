"""A small service for tests of the client: it hands out the sizes that a function says, and can be gone, hang, trickle or talk nonsense."""

import contextlib
import http.server
import json
import socket
import threading
import time


def sizes(names, number, shares, micro=None, until=None):
    """A sizes file of version 3, as the service hands it out. until: (seconds, seconds of a full micro-step by rank)."""
    micro = micro or [max(s, 1) for s in shares]
    total, ranks = sum(shares), len(shares)
    nodes = []
    for r, (name, s, m) in enumerate(zip(names, shares, micro)):
        n = {"name": name, "device": "cpu", "micro_batch": m if s else 0, "micro_steps": -(-s // m) if s else 0, "share": s, "gradient_weight": s * ranks / total}
        if until and s:
            n["deadline"] = {"seconds": until[0], "micro_step_seconds": until[1][r], "least": 1}
        nodes.append(n)
    out = {"version": 3, "workload": "", "global_batch": total, "nodes": nodes, "plan": number, "generation": 1}
    if until:
        out["deadline"] = {"seconds": until[0], "auto": False, "reserve": 0.0, "micro_steps": "cut"}
    return out


class Service:
    """decide(reports so far, ranks) -> arguments of sizes() after number. The plan's number rises whenever they change. As agreed, the answer to a report holds
    the sizes before it."""

    HUGE = b"[" + 3_000_000 * b"[1]," + b"1]"  # 12 MB of JSON

    def __init__(self, decide):
        self.decide, self.reports, self.registered = decide, [], []
        self.mode, self.connections = "good", []
        self.number, self.newest, self.old = 0, None, {}
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version, wbufsize = "HTTP/1.1", -1

            def setup(self):
                super().setup()
                service.connections.append(self.connection)

            def log_message(self, *_):
                pass

            def do_GET(self):
                if "/sizes" in self.path:
                    self.say(*(200, service.sizes()) if service.mode == "good" else (503, {}))
                    return
                deadline = "auto" if service.newest and len(service.newest) > 2 else ""
                self.say(200, {"name": "job", "deadline": deadline})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if service.mode == "hang":
                    time.sleep(20)
                if service.mode == "flood":  # of bytes one by one, as fast as they go
                    self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
                    for _ in range(60000):
                        self.wfile.write(b" ")
                        self.wfile.flush()
                if service.mode == "trickle":
                    self.send_response(200)
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    for _ in range(200):
                        self.wfile.write(b" ")
                        self.wfile.flush()
                        time.sleep(0.05)
                self.say(*service.answer(self.path, body, self.headers))

            def say(self, status, answer):
                answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # the client hung up
                pass

        self._handler, self._server = Handler, Server
        self.port = 0
        self.start()

    def start(self):
        self.server = self._server(("127.0.0.1", self.port), self._handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        for c in self.connections:
            with contextlib.suppress(OSError):
                c.shutdown(socket.SHUT_RDWR)
        self.server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path, body, headers):
        if self.mode == "nonsense":
            return 200, b"<html>it works!</html>"
        if self.mode == "refuse":
            return 401, {"detail": "the token is wrong"}
        if self.mode == "busy":
            return 429, {"detail": "later"}
        if self.mode == "huge":
            return 200, self.HUGE
        if self.mode in ("absurd", "too much"):
            share = -5 if self.mode == "absurd" else 1 << 20
            return 200, {"generation": 1, "verdict": "accepted", "sizes": sizes(self.names, 99, [share] * len(self.names))}
        if path.endswith("/generations"):
            self.registered.append((path, body, headers.get("Authorization")))
            self.names, self.number, self.newest = [r["name"] for r in body["ranks"]], 0, None
            return 201, {"generation": 1, "sizes": self.sizes()}
        if self.mode == "forgot":
            self.mode = "good"
            return 409, {"title": "no such generation"}
        self.check(body)
        before = self.sizes()
        self.reports.append(body)
        return 200, {"verdict": "accepted", "sizes": before}

    def check(self, body):
        """What the contract says of a report."""
        shares = self.old[body["plan"]][0]
        assert body["generation"] == 1 and len(body["ranks"]) == len(shares), body
        timed = len(self.old[body["plan"]]) > 2
        for r, share in zip(body["ranks"], shares):
            assert r is None or share and (timed or 0 <= r["samples"] <= share), (body, shares)
            assert r is None or r.get("micro_steps", 0) <= r["samples"], body

    def sizes(self):
        now = self.decide(self.reports, len(self.names))
        if now != self.newest:
            self.number, self.newest = self.number + 1, now
            self.old[self.number] = now
        return sizes(self.names, self.number, *now)

"""A small client of NATS (https://docs.nats.io/reference/reference-protocols/nats-protocol) and of JetStream
(https://docs.nats.io/reference/reference-protocols/nats_api_reference). It has only what a run needs. The library nats-py would need asyncio's event loop
in a second thread. Here the thread that uses a connection also reads it."""

import base64
import collections
import json
import secrets
import select
import socket
import ssl
import time
import urllib.parse

from .header import Refused

_MAX_PAYLOAD = 8 << 20
_MAX_LINE = 64 << 10
HEARTBEAT = 5.0  # seconds between heartbeats of a stream


class Disconnected(ConnectionError):
    """The connection is lost. Connect again."""


class Full(Disconnected):
    """The broker stores no more messages."""


class Denied(Refused):
    """The server refuses access: the token is wrong, or this rank may not use the subject."""


class Message(collections.namedtuple("Message", "sid subject reply headers data")):
    """A message, with the number of its subscription."""

    def position(self):
        """The position of a stream's message in the stream, else None."""
        f = (self.reply or "").split(".")
        if len(f) < 9 or f[:2] != ["$JS", "ACK"]:
            return None
        return int(f[5 if len(f) == 9 else 7])  # newer servers insert a domain and the hash of an account

    def status(self):
        """The status, as 100 (heartbeat, flow control) or 503 (no responders); None for data."""
        first = self.headers.split(b"\r\n", 1)[0].split() if self.headers else []
        return int(first[1]) if len(first) > 1 and first[1].isdigit() else None


class Connection:
    """A connection to a server. url: nats://HOST:PORT or tls://HOST:PORT, without secrets."""

    def __init__(self, url, token="", user="", ca="", timeout=10.0):
        u = urllib.parse.urlsplit(url)
        if u.scheme not in ("nats", "tls") or not u.hostname or u.username or u.password:
            raise Refused(f"{url!r} is not nats://HOST:PORT or tls://HOST:PORT; pass the token as token=")
        self._buffer, self._inbox, self._next = bytearray(), "_INBOX." + secrets.token_hex(12), 1
        self.queue = []  # messages that were read and not taken yet
        try:
            self._socket = socket.create_connection((u.hostname, u.port or 4222), timeout=timeout)
        except OSError as e:
            raise Disconnected(f"{url}: {e}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._until = time.monotonic() + timeout
            info = self._line()
            if not info.startswith(b"INFO "):
                raise Refused(f"{url}: {info[:40]!r} is not the greeting of a NATS server")
            info = json.loads(info[5:])
            if u.scheme == "tls":
                context = ssl.create_default_context(cafile=ca or None)
                self._socket = context.wrap_socket(self._socket, server_hostname=u.hostname)
            elif info.get("tls_required"):
                raise Refused(f"{url}: the server requires TLS; write tls:// instead of nats://")
            options = {"verbose": False, "pedantic": False, "lang": "python", "version": "0", "protocol": 1, "headers": True, "no_responders": True}
            if token:
                options |= {"auth_token": token, "user": user, "pass": token}
            self._send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
            self._until = time.monotonic() + timeout
            while (line := self._line()) != b"PONG":
                self._control(line)
            self._send(f"SUB {self._inbox}.* 1\r\n".encode())
        except BaseException as e:
            self.close()
            if isinstance(e, ssl.SSLError):
                raise Refused(f"{url}: {e}; is the certificate's authority the one given?") from None
            if isinstance(e, (OSError, ValueError)) and not isinstance(e, (Refused, Disconnected)):
                raise Disconnected(f"{url}: {e}") from None
            raise

    def close(self):
        try:
            self._socket.close()
        except OSError:
            pass

    # -- bytes

    def _send(self, data):
        try:
            self._socket.sendall(data)
        except OSError as e:
            raise Disconnected(str(e)) from None

    def _fill(self, timeout):
        """Reads data, waiting at most timeout seconds for the first. Returns whether there was any."""
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        try:
            if not pending and not select.select([self._socket], [], [], max(0, timeout))[0]:
                return False
            data = self._socket.recv(1 << 18)
        except ssl.SSLWantReadError:
            return False
        except (OSError, ValueError) as e:
            raise Disconnected(str(e)) from None
        if not data:
            raise Disconnected("the server closed the connection")
        self._buffer += data
        return True

    def _line(self):
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > _MAX_LINE or not self._fill(self._until - time.monotonic()):
                raise Disconnected("the server sent no line")
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return bytes(line)

    def _control(self, line):
        if line == b"PING":
            self._send(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            text = line[4:].decode(errors="replace").strip(" '")
            low = text.lower()
            if "permissions violation" in low or "authorization" in low or "authentication" in low:
                raise Denied(f"the server refuses: {text}")
            raise Disconnected(text)

    def _parse(self):
        """Moves complete messages from the buffer to the queue."""
        buffer = self._buffer
        while (end := buffer.find(b"\r\n")) >= 0:
            line = bytes(buffer[:end])
            if line[:4] not in (b"MSG ", b"HMSG"):
                del buffer[: end + 2]
                self._control(line)
                continue
            f = line.decode().split()
            headed = f[0] == "HMSG"
            sizes = [int(x) for x in (f[-2:] if headed else f[-1:])]
            if not 0 <= sizes[0] <= sizes[-1] <= _MAX_PAYLOAD:
                raise Disconnected(f"a message of {sizes[-1]} bytes")
            if len(buffer) < end + 4 + sizes[-1]:
                return
            body = bytes(buffer[end + 2 : end + 2 + sizes[-1]])
            n = sizes[0] if headed else 0
            reply = f[3] if len(f) == (6 if headed else 5) else None
            self.queue.append(Message(int(f[2]), f[1], reply, body[:n], body[n:]))
            del buffer[: end + 4 + sizes[-1]]
        if len(buffer) > _MAX_LINE:
            raise Disconnected("the server sent a line without an end")

    # -- messages

    def poll(self, timeout):
        """Reads messages into the queue, waiting at most timeout seconds for the first."""
        self._parse()
        if self.queue:
            timeout = 0
        while self._fill(timeout):
            timeout = 0
            self._parse()

    def publish(self, subject, data, reply="", headers=None):
        if headers is None:
            self._send(f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n")
            return
        h = b"NATS/1.0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items()) + b"\r\n"
        self._send(f"HPUB {subject} {reply} {len(h)} {len(h) + len(data)}\r\n".encode() + h + data + b"\r\n")

    def subscribe(self, subject):
        self._next += 1
        self._send(f"SUB {subject} {self._next}\r\n".encode())
        return self._next

    def unsubscribe(self, sid):
        self._send(f"UNSUB {sid}\r\n".encode())
        self.queue = [m for m in self.queue if m.sid != sid]

    def inbox(self):
        return f"{self._inbox}.{secrets.token_hex(8)}"

    def request(self, subject, data=b"", headers=None, timeout=10.0):
        """Sends a request and returns the answer. Other messages stay in the queue."""
        inbox, until = self.inbox(), time.monotonic() + timeout
        self.publish(subject, data, inbox, headers)
        while True:
            for i, m in enumerate(self.queue):
                if m.sid == 1 and m.subject == inbox:
                    del self.queue[i]
                    if m.status() == 503:
                        raise Disconnected(f"{subject}: nobody answers; is JetStream on?")
                    return m
            left = until - time.monotonic()
            if left <= 0:
                raise Disconnected(f"{subject}: no answer within {timeout:g} s")
            if not self._fill(left):
                continue
            self._parse()

    def api(self, subject, body=None, timeout=10.0):
        """Sends a request to JetStream and returns the answer. It has "error" if JetStream refused."""
        m = self.request("$JS.API." + subject, json.dumps(body).encode() if body is not None else b"", timeout=timeout)
        return json.loads(m.data)


class Stream:
    """The messages of a stream, in order."""

    def __init__(self, connection, name):
        self.connection, self.name, self._sid = connection, name, None

    def read(self, begin, subject=""):
        """Starts delivery from a position on, of one subject if given. Returns how many messages wait."""
        if self._sid is not None:
            self.connection.unsubscribe(self._sid)
        to = self.connection.inbox() + ".data"
        self._sid = self.connection.subscribe(to)
        config = {"deliver_subject": to, "deliver_policy": "by_start_sequence", "opt_start_seq": max(1, begin), "ack_policy": "none", "replay_policy": "instant",
                  "idle_heartbeat": int(HEARTBEAT * 1e9), "max_deliver": 1, "mem_storage": True, "num_replicas": 1}  # fmt: skip
        if subject:
            config["filter_subject"] = subject
        a = self.connection.api(f"CONSUMER.CREATE.{self.name}", {"stream_name": self.name, "config": config})
        if "error" in a:
            raise Refused(f"stream {self.name}: {a['error'].get('description', a['error'])}")
        return a["num_pending"]

    def take(self, timeout):
        """Waits at most timeout seconds. Returns the new messages, (position, subject, data) each, and whether anything came, as a heartbeat."""
        self.connection.poll(timeout)
        mine = [m for m in self.connection.queue if m.sid == self._sid]
        self.connection.queue = [m for m in self.connection.queue if m.sid != self._sid]
        return [(m.position(), m.subject, m.data) for m in mine if m.position() is not None], bool(mine)

    def answers(self):
        """The acknowledgements of published messages: inbox -> JSON."""
        q = self.connection.queue
        self.connection.queue = [m for m in q if m.sid != 1]
        return {m.subject: (json.loads(m.data) if m.data else {"error": {"code": m.status(), "description": "nobody answers"}}) for m in q if m.sid == 1}

    def message(self, position):
        """The subject and the data of the message at a position."""
        a = self.connection.api(f"STREAM.MSG.GET.{self.name}", {"seq": position})
        if "error" in a:
            raise Refused(f"stream {self.name}, message {position}: {a['error'].get('description', a['error'])}")
        return a["message"]["subject"], base64.b64decode(a["message"].get("data", ""))

"""How the two scripts beside this file talk to a host, and how they wait.

Plain urllib and nothing else. Knows HTTP, server-sent events and clocks; knows no rule of the
protocol. Never sleeps for a fixed time: it asks again until a deadline.
"""

import http.client
import http.server
import json
import secrets
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

TERMINAL = ("completed", "failed", "cancelled")
REPLAY = "openwop-Idempotent-Replay"
NOTHING = object()

# A proxy of the machine has no business between us and the host, for the public client neither.
urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))


class Unmet(AssertionError):
    """Something that had to hold for the rest to make sense did not."""


class Reply:
    """An answer of any status."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.text = body.decode("utf-8", errors="replace")
        try:
            self.json = json.loads(self.text) if self.text else None
        except ValueError:
            self.json = None

    @property
    def fields(self):
        return self.json if isinstance(self.json, dict) else {}

    @property
    def error(self):
        return self.fields.get("error")

    @property
    def details(self):
        found = self.fields.get("details")
        return found if isinstance(found, dict) else {}

    @property
    def replay(self):
        return self.headers.get(REPLAY)

    @property
    def is_good(self):
        return 200 <= self.status < 300

    @property
    def is_envelope(self):
        """Whether the body is the closed error envelope."""
        body = self.fields
        return (
            bool(body)
            and set(body) <= {"error", "message", "details"}
            and isinstance(body.get("error"), str)
            and isinstance(body.get("message"), str)
            and isinstance(body.get("details", {}), dict)
        )

    def __str__(self):
        return f"{self.status} {self.text[:300]}"


class Frame:
    """One server-sent event."""

    def __init__(self, event, data, frame_id):
        self.event = event
        self.id = frame_id
        self.data = data
        try:
            self.json = json.loads(data)
        except ValueError:
            self.json = None


class Stream:
    """What came of a subscription: the frames, and who ended it."""

    def __init__(self, status, frames, closed_by, seconds):
        self.status = status
        self.frames = frames
        self.closed_by = closed_by
        self.seconds = seconds

    @property
    def types(self):
        return [frame.event for frame in self.frames]

    @property
    def events(self):
        """All events, batches taken apart."""
        found = []
        for frame in self.frames:
            found.extend(frame.json if isinstance(frame.json, list) else [frame.json])
        return [event for event in found if isinstance(event, dict)]


def quoted(part):
    return urllib.parse.quote(part, safe="")


def fresh(word="k"):
    """A key that nobody has used."""
    return f"onetake-{word}-{secrets.token_hex(8)}"


class Host:
    """A host, and the key of one tenant."""

    def __init__(self, base, key):
        self.base = base.rstrip("/")
        self.key = key

    def call(self, method, path, body=NOTHING, *, key=None, headers=None, auth=True, timeout=30):
        """One request. `auth` is True for our key, False for none, or a key."""
        sent = {"Accept": "application/json"}
        data = None
        if isinstance(body, bytes):
            data = body
        elif body is not NOTHING:
            data = json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        if auth:
            sent["Authorization"] = f"Bearer {self.key if auth is True else auth}"
        if key is not None:
            sent["Idempotency-Key"] = key
        sent.update(headers or {})
        asked = urllib.request.Request(self.base + path, data=data, headers=sent, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=timeout) as answer:
                return Reply(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return Reply(refused.code, refused.headers, refused.read())

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body, **more):
        return self.call("POST", path, body, **more)

    def delete(self, path, **more):
        return self.call("DELETE", path, **more)

    def stream(self, path, *, last=None, timeout=15):
        """Reads server-sent events until the host closes, or the time is over."""
        sent = {"Accept": "text/event-stream", "Authorization": f"Bearer {self.key}"}
        if last is not None:
            sent["Last-Event-ID"] = str(last)
        began = time.monotonic()
        asked = urllib.request.Request(self.base + path, headers=sent)
        frames = []
        try:
            with urllib.request.urlopen(asked, timeout=timeout) as answer:
                closed_by = read_frames(answer, frames, began + timeout)
                status = answer.status
        except urllib.error.HTTPError as refused:
            with refused:
                refused.read()
            return Stream(refused.code, [], "server", time.monotonic() - began)
        return Stream(status, frames, closed_by, time.monotonic() - began)

    # Runs.

    def create(self, workflow, inputs=None, *, key=None, **more):
        body = {"workflowId": workflow, **more}
        if inputs is not None:
            body["inputs"] = inputs
        return self.post("/v1/runs", body, key=key)

    def begin(self, workflow, inputs=None, **more):
        """Begins a run that must begin, and gives its name."""
        reply = self.create(workflow, inputs, **more)
        if reply.status != 201 or not isinstance(reply.fields.get("runId"), str):
            raise Unmet(f"a run of {workflow} did not begin: {reply}")
        return reply.fields["runId"]

    def run(self, run_id):
        return self.get(f"/v1/runs/{quoted(run_id)}")

    def cancel(self, run_id, reason="clean-up", **more):
        return self.post(f"/v1/runs/{quoted(run_id)}/cancel", {"reason": reason}, **more)

    def resolve(self, run_id, node, value, **more):
        path = f"/v1/runs/{quoted(run_id)}/interrupts/{quoted(node)}"
        return self.post(path, {"resumeValue": value}, **more)

    def events(self, run_id, query=""):
        """The whole log, by poll."""
        reply = self.get(f"/v1/runs/{quoted(run_id)}/events/poll{query}")
        if reply.status != 200 or not isinstance(reply.fields.get("events"), list):
            raise Unmet(f"the events of {run_id} cannot be read: {reply}")
        return reply.fields["events"]

    def until(self, run_id, statuses, timeout=30.0):
        """The snapshot as soon as the status is one of `statuses`."""
        wanted = (statuses,) if isinstance(statuses, str) else tuple(statuses)
        seen = None

        def look():
            nonlocal seen
            seen = self.run(run_id)
            return seen.fields if seen.fields.get("status") in wanted else None

        found = eventually(look, timeout)
        if found is None:
            raise Unmet(f"{run_id} was not {' or '.join(wanted)} within {timeout} s: {seen}")
        return found

    def ended(self, run_id, timeout=30.0):
        return self.until(run_id, TERMINAL, timeout)


def read_frames(answer, frames, deadline):
    """Fills `frames`; says who ended the stream: server, timeout or broken."""
    event, data, frame_id = "message", [], None
    try:
        for raw in answer:
            line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
            if not line:
                if data:
                    frames.append(Frame(event, "\n".join(data), frame_id))
                event, data, frame_id = "message", [], None
            elif not line.startswith(":"):
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "event":
                    event = value
                elif field == "data":
                    data.append(value)
                elif field == "id":
                    frame_id = value
            if time.monotonic() > deadline:
                return "timeout"
    except (TimeoutError, socket.timeout):
        return "timeout"
    except http.client.HTTPException:
        return "broken"
    if data:
        frames.append(Frame(event, "\n".join(data), frame_id))
    return "server"


def eventually(look, timeout, step=0.05):
    """What `look` gives as soon as it gives something, or None when the time is over."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            return None
        time.sleep(step)


def at_once(count, act):
    """Calls `act(n)` on `count` threads that begin together."""
    gate = threading.Barrier(count)

    def go(n):
        gate.wait(timeout=30)
        return act(n)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(go, range(count)))


class Receiver:
    """A subscriber on this machine that remembers what it was sent."""

    def __init__(self, refuse_first=0):
        self.deliveries = []
        self.refused = 0
        outer = self
        left = [refuse_first]
        guard = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                with guard:
                    refuse = left[0] > 0
                    left[0] -= refuse
                    if refuse:
                        outer.refused += 1
                    else:
                        found = {name.lower(): value for name, value in self.headers.items()}
                        outer.deliveries.append((found, body, time.monotonic()))
                self.send_response(500 if refuse else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def of(self, run_id):
        """The deliveries that name this run."""
        return [d for d in list(self.deliveries) if run_id.encode() in d[1]]

    def wait_for(self, run_id, timeout=30.0):
        """The first delivery that names this run."""
        found = eventually(lambda: self.of(run_id), timeout)
        if not found:
            raise Unmet(f"nothing of {run_id} was delivered within {timeout} s")
        return found[0]

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

"""The client of test_serve.sh: serve_client.py CHECK URL ARGS... Fails with a sentence."""
import http.client
import json
import re
import socket
import struct
import sys
import threading
import time
from urllib.parse import urlsplit

WAIT_S = 120  # for one answer, on a loaded machine


def fail(text):
    sys.exit("FAILED: " + text)


class Client:
    """One keep-alive connection."""

    def __init__(self, url, **headers):
        parts = urlsplit(url)
        self.path = parts.path
        self.headers = headers
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=WAIT_S)

    def ask(self, method, path, body=None, **headers):
        self.connection.request(method, path, body, {**self.headers, **headers})
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode()

    def predict(self, instances, **more):
        status, text = self.ask("POST", self.path + ":predict", json.dumps({"instances": instances, **more}))
        if status != 200:
            fail("status %d: %s" % (status, text))
        return text

    def numbers(self, instances, **more):
        """The texts of the predictions, as they are in the answer."""
        text = re.sub(r"\s", "", self.predict(instances, **more))
        if not text.startswith('{"predictions":[') or not text.endswith("]}"):
            fail("the answer is " + text[:100])
        inner = text[len('{"predictions":['):-2]
        if inner.startswith("["):
            return [row.replace(",", " ") for row in inner[1:-1].split("],[")]
        return inner.split(",") if inner else []


def lines_of(path):
    with open(path) as f:
        return f.read().splitlines()


def same(what, got, want):
    if len(got) != len(want):
        fail("%s: %d predictions instead of %d" % (what, len(got), len(want)))
    for i, (g, w) in enumerate(zip(got, want)):
        if g != w:
            fail("%s: prediction %d is %s instead of %s" % (what, i, g, w))


def in_parts(client, instances, n=97):
    got = []
    for at in range(0, len(instances), n):
        got += client.numbers(instances[at:at + n])
    return got


# ---- rows of each format ----

def check_lines(url, rows, expected):
    """Lines as JSON and as text."""
    client, texts, want = Client(url), lines_of(rows), lines_of(expected)
    same("lines", in_parts(client, texts), want)
    status, text = client.ask("POST", client.path + ":predict", ("\n".join(texts) + "\n").encode(), **{"Content-Type": "text/plain"})
    same("lines of text", re.sub(r"\s", "", text)[len('{"predictions":['):-2].split(","), want)


def check_json(url, rows, expected):
    """Rows that are JSON, one per line of the file."""
    same("rows", in_parts(Client(url), [json.loads(line) for line in lines_of(rows)]), lines_of(expected))


def check_near(url, rows, expected):
    """The same to rounding: sums of a net depend on the rows of its batch. From several threads at once."""
    instances, want = [json.loads(line) for line in lines_of(rows)], lines_of(expected)
    failures = []

    def run():
        try:
            client = Client(url)
            for i, row in enumerate(instances):
                got = client.numbers([row])[0]
                for g, w in zip(got.split(), want[i].split()):
                    if abs(float(g) - float(w)) > 1e-5:
                        failures.append("row %d: %s instead of %s" % (i, got, want[i]))
        except BaseException as error:  # also SystemExit
            failures.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        fail(failures[0])


def check_outputs(url, rows, classes, scores):
    client, instances = Client(url), [json.loads(line) for line in lines_of(rows)]
    same("classes", client.numbers(instances, signature_name="class"), lines_of(classes))
    same("scores", client.numbers(instances, signature_name="score"), lines_of(scores))


# ---- requests ----

def check_bad(url, cases):
    """Lines STATUS, a tab, a part of the error, a tab, the body. The connection stays usable."""
    client = Client(url)
    for line in lines_of(cases):
        want, part, body = line.split("\t")
        status, text = client.ask("POST", client.path + ":predict", body.encode().decode("unicode_escape").encode("latin1"))
        try:
            error = json.loads(text)["error"]
        except ValueError:
            fail("%s: the answer is %s" % (body, text))
        if status != int(want) or part not in error:
            fail("%s: status %d, %s instead of %s, %s" % (body, status, error, want, part))
        if "--" in error:
            fail("%s: the error names an option, which the client does not have: %s" % (body, error))
    client.predict([])


def check_paths(url):
    client = Client(url)
    version = json.loads(client.ask("GET", client.path)[1])["model_version_status"][0]
    if version["state"] != "AVAILABLE" or version["status"]["error_code"] != "OK":
        fail("the status is %s" % version)
    step = version["version"]
    meta = json.loads(client.ask("GET", client.path + "/metadata")[1])
    if meta["model_spec"]["version"] != step or meta["metadata"]["input"]["format"] != "criteo":
        fail("the metadata is %s" % meta)
    body = '{"instances": []}'
    for method, path, headers, want in [
            ("GET", client.path + "/versions/" + step, {}, 200), ("GET", client.path + "/versions/77777", {}, 404),
            ("POST", client.path + "/versions/" + step + ":predict", {}, 200),
            ("POST", client.path + "/versions/77777:predict", {}, 404), ("GET", "/", {}, 404), ("GET", "/v1/models/other", {}, 404),
            ("POST", "/v1/models/other:predict", {}, 404), ("GET", client.path + ":predict", {}, 405), ("PUT", client.path, {}, 405),
            ("DELETE", "/metrics", {}, 405), ("GET", "/metrics", {}, 200), ("POST", client.path + ":classify", {}, 404),
            ("GET", client.path, {"Host": "evil.example"}, 421), ("GET", client.path, {"Host": "served.example"}, 200),
            ("POST", client.path + ":predict", {"Origin": "http://evil.example"}, 403)]:
        one = Client(url)  # a refused POST ends its connection
        status, text = one.ask(method, path, body if method == "POST" else None, **headers)
        if status != want:
            fail("%s %s %s: status %d instead of %d: %s" % (method, path, headers, status, want, text))
        if status != 200 and list(json.loads(text)) != ["error"]:
            fail("%s %s: the answer is %s" % (method, path, text))


def check_token(url, token):
    for headers, path, want in [({}, "", 401), ({"Authorization": "Bearer wrong"}, "", 401),
                                ({"Authorization": "Bearer " + token}, "", 200), ({}, "?token=" + token, 200),
                                ({"Authorization": "Bearer " + token, "Host": "any.example"}, "", 200)]:
        client = Client(url)
        status, text = client.ask("GET", client.path + path, **headers)
        if status != want:
            fail("token %s %s: status %d instead of %d: %s" % (headers, path, status, want, text))


def check_limits(url):
    """--max-rows 10 --max-body 2000 --connections 4."""
    client = Client(url)
    body = json.dumps({"instances": [[0.5] * 1000]}).encode()
    status, text = client.ask("POST", client.path + ":predict", body)
    if status != 413 or "more than 2000 bytes" not in text:
        fail("a large body: %d %s" % (status, text))
    client = Client(url)
    client.connection.request("POST", client.path + ":predict", iter([body[:1500], body[1500:]]), encode_chunked=True,
                              headers={"Transfer-Encoding": "chunked"})
    answer = client.connection.getresponse()
    if answer.status != 413:
        fail("a large body in chunks: %d" % answer.status)
    client = Client(url)
    status, text = client.ask("POST", client.path + ":predict", json.dumps({"instances": [{}] * 11}))
    if status != 400 or "more than 10 rows" not in text:
        fail("many rows: %d %s" % (status, text))
    idle = [socket.create_connection((client.connection.host, client.connection.port)) for _ in range(9)]
    Client(url).predict([])
    idle[0].settimeout(WAIT_S)
    if idle[0].recv(1) != b"":
        fail("the connection that waited longest is not closed")


def check_crowd(url):
    """--connections 50: a request is answered while many more connections wait."""
    client = Client(url)
    idle = [socket.create_connection((client.connection.host, client.connection.port), WAIT_S) for _ in range(300)]
    for _ in range(3):
        Client(url).predict([])
    if idle[0].recv(1) != b"":
        fail("the connection that waited longest is not closed")
    idle[-1].sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % client.path.encode())
    if not idle[-1].recv(100).startswith(b"HTTP/1.1 200"):
        fail("one of the newest connections is closed")


def check_metadata(url, labels):
    """The labels of the classes, as JSON."""
    client = Client(url)
    status, text = client.ask("GET", client.path + "/metadata")
    if status != 200 or json.loads(text)["metadata"]["output"]["labels"] != json.loads(labels):
        fail("metadata: %d %s" % (status, text))


def check_header(url, line):
    """A body of lines that begins with the header of the table."""
    client = Client(url)
    status, text = client.ask("POST", client.path + ":predict", line + "\n", **{"Content-Type": "text/plain"})
    if status != 400 or "line:1: the line is the header of the table" not in text:
        fail("a header: %d %s" % (status, text))


def check_idle(url):
    """--idle-timeout 0.3: a request that arrives too slowly, and a connection without one."""
    client = Client(url)
    client.predict([])
    slow = socket.create_connection((client.connection.host, client.connection.port), WAIT_S)
    slow.sendall(b"POST %s:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{" % client.path.encode())
    if slow.recv(1) != b"" or client.connection.sock.recv(1) != b"":
        fail("a connection without a request is not closed")


def metric(client, name):
    _, text = client.ask("GET", "/metrics")
    for line in text.splitlines():
        if line.startswith(name):
            return float(line.split()[-1])
    fail("there is no metric " + name)


def check_metrics(url, out):
    client = Client(url)
    ok, bad = 'muster_serve_requests_total{model="m",code="200"}', 'muster_serve_requests_total{model="m",code="400"}'
    before = metric(client, ok), metric(client, bad), metric(client, "muster_serve_rows_total"), metric(client, "muster_serve_request_seconds_count")
    client.predict([{}, {}, {}])
    client.ask("POST", client.path + ":predict", "{")
    after = metric(client, ok), metric(client, bad), metric(client, "muster_serve_rows_total"), metric(client, "muster_serve_request_seconds_count")
    if after[0] - before[0] < 4 or [a - b for a, b in zip(after[1:], before[1:])] != [1, 3, 1]:
        fail("metrics %s before and %s after" % (before, after))
    if metric(client, "muster_serve_request_seconds_bucket{model=\"m\",le=\"+Inf\"}") != after[3]:
        fail("the histogram does not add up")
    with open(out, "w") as f:
        f.write(client.ask("GET", "/metrics")[1])


# ---- a newer checkpoint ----

def check_reload(url, rows, before, step, ready):
    """Requests run while the run is trained further; none fails, and all are answered by one model or another."""
    instances, old = lines_of(rows), lines_of(before)
    stop, failures, counts = threading.Event(), [], []

    def run():
        n = 0
        try:
            client = Client(url)
            while not stop.is_set():
                got = client.numbers(instances[:20])
                n += 1
                if len(got) != 20:
                    failures.append("%d predictions" % len(got))
        except BaseException as error:
            failures.append(repr(error))
        counts.append(n)

    client = Client(url)
    same("the first model", client.numbers(instances[:20]), old[:20])
    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    open(ready, "w").close()
    end = time.monotonic() + WAIT_S
    while json.loads(client.ask("GET", client.path)[1])["model_version_status"][0]["version"] != step:
        if time.monotonic() > end or failures:
            stop.set()
            fail("no newer model: %s" % failures)
        time.sleep(0.02)
    stop.set()
    for t in threads:
        t.join()
    if failures or min(counts) == 0:
        fail("requests failed while the model was replaced: %s" % failures)
    if metric(client, "muster_serve_reloads_total") < 1 or metric(client, "muster_serve_model_step") != int(step):
        fail("the metrics do not show the new model")


# ---- the end ----

def check_end(url, pid):
    """A request that has begun before SIGTERM is answered; then the server ends."""
    import os
    import signal
    client = Client(url)
    body = b'{"instances": []}'
    begun = socket.create_connection((client.connection.host, client.connection.port), WAIT_S)
    begun.sendall(b"POST %s:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" %
                  (client.path.encode(), len(body), body[:5]))
    end = time.monotonic() + WAIT_S
    while metric(client, "muster_serve_requests_in_progress") < 2:  # this one and that of the metrics
        if time.monotonic() > end:
            fail("the request does not begin")
    os.kill(int(pid), signal.SIGTERM)
    while client.connection.sock is not None:  # idle connections are closed
        try:
            client.predict([])
        except (OSError, http.client.HTTPException):
            break
    begun.sendall(body[5:])
    answer = b""
    while b"]}" not in answer:
        part = begun.recv(4096)
        if not part:
            fail("a request that had begun was not answered: %r" % answer)
        answer += part
    if not answer.startswith(b"HTTP/1.1 200"):
        fail("the last answer is %r" % answer)


globals()["check_" + sys.argv[1]](*sys.argv[2:])

"""A small Google Cloud Storage over HTTP on loopback: what the JSON API promises, and faults on demand.

The emulators on PyPI ignore `ifGenerationMatch`, which is what the store stands on. This one keeps it: buckets; objects
by media, multipart and resumable upload, seen whole at the end of an upload or not at all; ranges; listing with
prefix, delimiter and pages; deletion; generations, and 412 where a precondition fails.
"""

import base64
import contextlib
import datetime
import hashlib
import http.server
import itertools
import json
import re
import threading
import urllib.parse
import uuid

import attrs

PAGE = 3  # objects in a page of a listing: few, so that listings have several pages


@attrs.define
class Fault:
    """What happens to the next requests that match: `unavailable` (503), `reset`, or `lost` (done, but never told).

    Of S3 also a status, or `torn` (half of a reply).
    """

    kind: str
    method: str
    pattern: str = ""
    times: int = 1


class Faulty:
    """A server whose requests fail on demand; it has a `lock`, and `faults`."""

    def fault(self, method, path):
        """What is to happen to a request, if anything."""
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and re.search(fault.pattern, path):
                    fault.times -= 1
                    return fault.kind
        return None

    @contextlib.contextmanager
    def failing(self, kind, method, pattern="", times=1):
        """Faults while the context lasts."""
        fault = Fault(kind, method, pattern, times)
        self.faults.append(fault)
        try:
            yield fault
        finally:
            self.faults.remove(fault)


@attrs.define
class Upload:
    bucket: str
    name: str
    query: dict
    metadata: dict
    data: bytearray = attrs.field(factory=bytearray)
    done: dict | None = None


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class GoogleStorage(Faulty, http.server.ThreadingHTTPServer):
    """The server; `url` is what STORAGE_EMULATOR_HOST is set to."""

    daemon_threads = True
    request_queue_size = 64
    scheme = "gs"
    found_by = "STORAGE_EMULATOR_HOST"
    methods = {"read": "GET", "write": "POST", "create": "POST", "size": "GET", "list": "GET", "remove": "DELETE"}  # noqa: RUF012

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.lock = threading.RLock()
        self.generations = itertools.count(1)
        self.buckets = {}
        self.refusing = {}  # status by bucket
        self.swallowed = 0  # how many bytes at the end of a part of an upload are lost, once
        self.uploads = {}
        self.faults = []
        self.requests = []

    def bucket(self, name):
        if name in self.refusing:
            raise Refused(self.refusing[name], "somebody@example.org does not have storage.objects access.")
        if name not in self.buckets:
            raise Refused(404, "The specified bucket does not exist.")
        return self.buckets[name]

    def found(self, bucket, name):
        objects = self.bucket(bucket)
        if name not in objects:
            raise Refused(404, f"No such object: {bucket}/{name}")
        return objects[name]

    def precondition(self, bucket, name, query):
        wanted = query.get("ifGenerationMatch")
        there = self.bucket(bucket).get(name)
        if wanted is not None and int(wanted) != (0 if there is None else int(there[0]["generation"])):
            raise Refused(412, "At least one of the pre-conditions you specified did not hold.")

    def insert(self, bucket, name, data, metadata, query):
        with self.lock:
            self.precondition(bucket, name, query)
            resource = {
                **metadata,
                "kind": "storage#object",
                "bucket": bucket,
                "name": name,
                "generation": str(next(self.generations)),
                "size": str(len(data)),
                "updated": _moment(),
                "timeCreated": _moment(),
                "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
            }
            self.bucket(bucket)[name] = (resource, bytes(data))
            return resource

    def listing(self, bucket, query):
        with self.lock:
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
            size = min(int(query.get("maxResults", PAGE)), PAGE)
            entries = {}
            for name, (resource, _) in sorted(self.bucket(bucket).items()):
                if not name.startswith(prefix):
                    continue
                rest = name[len(prefix) :]
                if delimiter and delimiter in rest:
                    entries[prefix + rest.partition(delimiter)[0] + delimiter] = None
                else:
                    entries[name] = resource
        names = [name for name in sorted(entries) if name > query.get("pageToken", "")]
        page = names[:size]
        answer = {"kind": "storage#objects"}
        answer["items"] = [entries[name] for name in page if entries[name] is not None]
        answer["prefixes"] = [name for name in page if entries[name] is None]
        return answer | ({"nextPageToken": page[-1]} if len(names) > size else {})

    def empty(self):
        """Have one bucket, named `bucket`, with nothing in it."""
        self.buckets = {"bucket": {}}

    def names(self):
        """Of all objects."""
        return sorted(self.buckets["bucket"])

    def unfinished(self):
        """Uploads that were begun and neither completed nor given up."""
        return [upload for upload in self.uploads.values() if not upload.done]


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError):
            super().handle()

    def answer(self):
        split = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        self.parts = [urllib.parse.unquote(part) for part in split.path.strip("/").split("/")]
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.fault()
        self.server.requests.append((self.command, self.path))
        if fault == "reset":
            self.close_connection = True
            return
        try:
            status, headers, data = (503, {}, b"busy") if fault == "unavailable" else self.route()
        except Refused as refusal:
            error = {"error": {"code": refusal.status, "message": str(refusal)}}
            status, headers, data = refusal.status, {}, json.dumps(error).encode()
        if fault == "lost":
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the names that http.server looks for

    def fault(self):
        return self.server.fault(self.command, self.path)

    def route(self):
        match [self.command, *self.parts]:
            case ["POST", "storage", "v1", "b"]:
                name = json.loads(self.body)["name"]
                self.server.buckets.setdefault(name, {})
                return _json({"name": name})
            case ["GET", "storage", "v1", "b", bucket]:
                self.server.bucket(bucket)
                return _json({"name": bucket})
            case ["GET", "storage", "v1", "b", bucket, "o"]:
                return _json(self.server.listing(bucket, self.query))
            case ["GET", *prefix, "storage", "v1", "b", bucket, "o", name]:
                resource, data = self.server.found(bucket, name)
                media = prefix == ["download"] or self.query.get("alt") == "media"
                return self.media(data) if media else _json(resource)
            case ["DELETE", "storage", "v1", "b", bucket, "o", name]:
                with self.server.lock:
                    self.server.found(bucket, name)
                    del self.server.buckets[bucket][name]
                return 204, {}, b""
            case ["POST", "storage", "v1", "b", bucket, "o", name, "rewriteTo", "b", other, "o", copy]:
                resource, data = self.server.found(bucket, name)
                return _json({"done": True, "resource": self.server.insert(other, copy, data, resource, self.query)})
            case ["POST" | "PUT" | "DELETE", "upload", "storage", "v1", "b", bucket, "o"]:
                return self.upload(bucket)
        raise Refused(400, f"{self.command} {self.path} is not known here")

    def media(self, data):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            return 200, {}, data
        start, end = int(wanted[1]), int(wanted[2] or len(data) - 1)
        if start >= len(data):
            raise Refused(416, "The requested range cannot be satisfied.")
        part = data[start : end + 1]
        return 206, {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}"}, part

    def upload(self, bucket):
        if "upload_id" in self.query:
            return self.resume(self.server.uploads[self.query["upload_id"]])
        kind = self.query.get("uploadType")
        if kind == "media":
            return _json(self.server.insert(bucket, self.query["name"], self.body, {}, self.query))
        if kind == "multipart":
            metadata, data = self.multipart()
            name = self.query.get("name") or metadata["name"]
            return _json(self.server.insert(bucket, name, data, metadata, self.query))
        metadata = json.loads(self.body or b"{}")
        name = self.query.get("name") or metadata["name"]
        self.server.precondition(bucket, name, self.query)
        number = uuid.uuid4().hex
        self.server.uploads[number] = Upload(bucket, name, self.query, metadata)
        query = {**self.query, "upload_id": number}
        place = f"{self.server.url}/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(query)}"
        return 200, {"Location": place}, b""

    def multipart(self):
        boundary = re.search(r'boundary="?([^";]+)', self.headers["Content-Type"])[1].encode()
        _, first, rest = self.body.split(b"--" + boundary, 2)
        data = rest.partition(b"--" + boundary)[
            0
        ]  # as a server reads it: up to the next boundary, wherever it came from
        parts = [re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1] for part in (first, data)]
        return json.loads(parts[0]), re.sub(rb"\r?\n\Z", b"", parts[1])

    def resume(self, upload):
        if self.command == "DELETE":
            self.server.uploads = {key: kept for key, kept in self.server.uploads.items() if kept is not upload}
            return 499, {}, b""
        if upload.done is not None:
            return _json(upload.done)
        sent = re.fullmatch(r"bytes (\*|(\d+)-\d+)/(\*|\d+)", self.headers["Content-Range"])
        if sent[2] is not None:
            start = int(sent[2])
            if start > len(upload.data):
                raise Refused(400, "a part of the upload is missing")
            upload.data += self.body[len(upload.data) - start :]  # bytes that are there already are ignored
            kept = len(upload.data) - self.server.swallowed
            self.server.swallowed = 0
            del upload.data[kept:]
        if sent[3] != "*" and int(sent[3]) == len(upload.data):
            upload.done = self.server.insert(upload.bucket, upload.name, upload.data, upload.metadata, upload.query)
            return _json(upload.done)
        return 308, {"Range": f"bytes=0-{len(upload.data) - 1}"} if upload.data else {}, b""


def _moment():
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _json(content):
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


@contextlib.contextmanager
def running():
    """A server in a thread of its own."""
    server = GoogleStorage()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

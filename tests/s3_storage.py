"""An S3 over HTTP on loopback: moto's, with faults on demand around it.

Moto keeps `If-None-Match`, but looks first and writes then. S3 does both at once: so requests are served singly.
"""

import contextlib
import logging
import os
import socket
import threading

import attrs
from google_storage import Faulty

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # no credentials are looked for on the network
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "MOTO_S3_DEFAULT_MAX_KEYS": "3",  # objects in a page of a listing: few, so that listings have several pages
}
"""What finds and configures the server, but for its address."""

ERROR = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>{message}</Message><RequestId>0</RequestId></Error>"""

REFUSALS = {
    401: ("403 Forbidden", "InvalidAccessKeyId"),
    403: ("403 Forbidden", "AccessDenied"),
    404: ("404 Not Found", "NoSuchUpload"),
    409: ("409 Conflict", "ConditionalRequestConflict"),
    412: ("412 Precondition Failed", "PreconditionFailed"),  # without the condition that failed, as some servers say it
    501: ("501 Not Implemented", "NotImplemented"),
    503: ("503 Service Unavailable", "ServiceUnavailable"),
}
CONDITION = "HTTP_IF_NONE_MATCH"


@attrs.define(eq=False)
class S3Storage(Faulty):
    """The server; `url` is what AWS_ENDPOINT_URL is set to.

    Attributes:
        refusing: status by bucket.
        ignoring: whether conditions are ignored, as some servers do.
        requests: method, path with query, and condition of all requests so far.
    """

    scheme = "s3"
    found_by = "AWS_ENDPOINT_URL"
    methods = {"read": "GET", "write": "PUT", "create": "PUT", "size": "HEAD", "list": "GET", "remove": "DELETE"}  # noqa: RUF012

    application: object
    url: str = ""
    lock: threading.RLock = attrs.field(factory=threading.RLock)
    refusing: dict = attrs.field(factory=dict)
    ignoring: bool = False
    faults: list = attrs.field(factory=list)
    requests: list = attrs.field(factory=list)

    def __call__(self, environ, start_response):
        query = environ["QUERY_STRING"]
        path = environ["PATH_INFO"] + ("?" + query if query else "")
        fault = self.fault(environ["REQUEST_METHOD"], path)
        self.requests.append((environ["REQUEST_METHOD"], path, environ.get(CONDITION)))
        if fault == "reset":
            return hung_up(environ)
        if fault == "unavailable":
            return refused(environ, start_response, 503, "busy")
        status = fault if isinstance(fault, int) else self.refusing.get(path.split("/")[1].partition("?")[0])
        if status is not None:
            return refused(environ, start_response, status, "no")
        if self.ignoring:
            environ.pop(CONDITION, None)
        with self.lock:
            answer = b"".join(self.application(environ, start_response))
        if fault == "lost":
            return hung_up(environ)
        return [answer[: len(answer) // 2]] if fault == "torn" else [answer]

    @property
    def _backend(self):
        from moto.s3.models import s3_backends

        return s3_backends["123456789012"]["aws"]

    def empty(self):
        """Have one bucket, named `bucket`, with nothing in it."""
        self.requests.clear()
        with self.lock:
            self._backend.reset()
            self._backend.create_bucket("bucket", "us-east-1")

    def names(self):
        """Of all objects."""
        return sorted(self._backend.buckets["bucket"].keys)

    def unfinished(self):
        """Uploads that were begun and neither completed nor given up."""
        return list(self._backend.buckets["bucket"].multiparts)


def refused(environ, start_response, status, message):
    line, code = REFUSALS[status]
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    body = b"" if environ["REQUEST_METHOD"] == "HEAD" else ERROR.format(code=code, message=message).encode()
    start_response(line, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def hung_up(environ):
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return []


@contextlib.contextmanager
def running():
    """A server in a thread of its own."""
    import moto.s3.models
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_):
            pass

        def run_wsgi(self):
            with contextlib.suppress(OSError):
                super().run_wsgi()

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    moto.s3.models.S3_UPLOAD_PART_MIN_SIZE = 1
    storage = S3Storage(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, storage, threaded=True, request_handler=Quiet)
    server.daemon_threads = True
    storage.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield storage
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

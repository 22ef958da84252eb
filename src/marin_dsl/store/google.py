"""Stores on Google Cloud Storage, through gcsfs: its session, its credentials and its retries.

A large object is written by a resumable upload. A new one is created on condition that its generation is 0, which is
how Google says that there is none.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from marin_dsl.store.bucket import BucketFiles
from marin_dsl.store.files import OTHER, Entry, StoreUnavailable, unavailable
from marin_dsl.store.remote import moment_of


class GoogleFiles(BucketFiles):
    """A prefix of a bucket.

    Zonal buckets are written by another protocol than the one that is spoken here, and refuse.
    """

    scheme = "gs"
    make = "gcloud storage buckets create"

    def __init__(self, url: str) -> None:
        # gcsfs logs a traceback of every request that failed; the complaint below says what matters of it.
        logging.getLogger("gcsfs").addHandler(logging.NullHandler())
        super().__init__(url)

    def _open(self) -> Any:
        # The class of gcsfs's own package asks a second service for the kind of the bucket before every operation.
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem(use_listings_cache=False)

    def entries(self) -> Iterable[Entry]:
        prefix, page = f"{self._key(self.root)}/".lstrip("/"), None
        while True:
            with self._complaining("list", "runs"):
                found = self.fs.call("GET", "b/{}/o", self.bucket, prefix=prefix, pageToken=page, json_out=True)
            for item in found.get("items", ()):
                yield Entry(item["name"].removeprefix(prefix), int(item["size"]), moment_of(item))
            page = found.get("nextPageToken")
            if page is None:
                return

    def _facts(self, place: str) -> dict[str, Any]:
        found: dict[str, Any] = self.fs.call("GET", "b/{}/o/{}", self.bucket, self._key(place), json_out=True)
        return found

    def _listed(self, place: str) -> Iterator[str]:
        prefix, page = f"{self._key(place)}/", None
        while True:
            found = self.fs.call(
                "GET", "b/{}/o", self.bucket, prefix=prefix, delimiter="/", pageToken=page, json_out=True
            )
            yield from (item["name"].removeprefix(prefix) for item in found.get("items", ()))
            yield from (name.removeprefix(prefix).rstrip("/") for name in found.get("prefixes", ()))
            page = found.get("nextPageToken")
            if page is None:
                return

    @property
    def _uploads(self) -> str:
        return self.fs.base.replace("/storage/v1/", "/upload/storage/v1/") + "b/{}/o"

    def _upload(self, place: str, data: bytes, mark: str, *, new: bool = False) -> None:
        """One request with the whole content; the boundary between its parts is one that no content contains."""
        about = json.dumps({"name": self._key(place), "metadata": {"writer": mark}})
        body = b"\r\n".join(
            [
                f"--{mark}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{about}\r\n--{mark}".encode(),
                b"Content-Type: application/octet-stream\r\n",
                data,
                f"--{mark}--".encode(),
            ]
        )
        headers = {"Content-Type": f"multipart/related; boundary={mark}"}
        condition = {"ifGenerationMatch": "0"} if new else {}
        self.fs.call(
            "POST", self._uploads, self.bucket, uploadType="multipart", headers=headers, data=body, **condition
        )

    def _replace_in_pieces(self, path: str, first: bytes, pieces: Iterator[bytes]) -> None:
        with self._complaining("write", path):
            location = self._begun(self._place(path))
        try:
            offset, piece = 0, first
            while piece:
                following = next(pieces, b"")
                total = "*" if following else str(offset + len(piece))
                with self._complaining("write", path):
                    self._send(location, piece, offset, total)
                offset, piece = offset + len(piece), following
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong before is what matters
                self.fs.call("DELETE", location)
            raise

    def _begun(self, place: str) -> str:
        headers, _ = self.fs.call(
            "POST", self._uploads, self.bucket, uploadType="resumable", name=self._key(place), json={}
        )
        return str(headers["Location"])

    def _send(self, location: str, piece: bytes, offset: int, total: str) -> None:
        """Send a piece, and what the server did not take of it again."""
        end, rest = offset + len(piece), memoryview(piece)
        while rest:
            span = f"bytes {end - len(rest)}-{end - 1}/{total}"
            headers, reply = self.fs.call("PUT", location, headers={"Content-Range": span}, data=rest)
            if reply:  # the description of the whole object: all has arrived
                return
            rest = rest[len(rest) - (end - _taken(headers)) :]

    def _look(self) -> None:
        self.fs.call("GET", "b/{}/o", self.bucket, maxResults=1)

    def _complaint(self, doing: str, path: str, error: Exception) -> StoreUnavailable:
        what = f"store {self.url}: cannot {doing} {path}"
        code = getattr(error, "code", None)
        if isinstance(error, FileNotFoundError):
            return self._no_bucket()
        if str(error).startswith("Forbidden") or code == 403:
            return StoreUnavailable(
                f"{what}: permission denied: give this account the role `Storage Object User` on the bucket "
                f"`{self.bucket}`, or {OTHER}",
                self.url,
            )
        if code == 401 or type(error).__module__.startswith("google.auth"):
            return StoreUnavailable(
                f"{what}: no valid Google credentials: run `gcloud auth application-default login`, or {OTHER}",
                self.url,
            )
        if isinstance(error, OSError) and error.errno is not None:
            return unavailable(self.url, path, doing, error)
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        return StoreUnavailable(
            f"{what}: no proper answer after several tries ({reason}); try again later, or {OTHER}", self.url
        )


def _taken(headers: Mapping[str, str]) -> int:
    """Bytes of an upload that the server has."""
    return int(headers["Range"].rpartition("-")[2]) + 1 if "Range" in headers else 0

"""Stores on S3 and on what speaks like it, through s3fs: its session, its credentials and its retries.

A large object is written by an upload in parts. A new one is created on condition that no object matches
(`If-None-Match: *`). s3fs can ask for that too, but takes its own object, when a reply was lost, for somebody else's.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from marin_dsl.store.bucket import BucketFiles
from marin_dsl.store.files import OTHER, UNSAFE, Entry, StoreUnavailable, unavailable
from marin_dsl.store.remote import moment_of

PARTS_OF_A_SIZE = 1000
"""Parts of an upload before they are made twice as large: there may be 10,000, and an object may have 5 TB."""

CONFLICTS = 8
"""How often a creation is tried that meets another writer's; S3 then decides for neither and wants it repeated."""

_NOT_KNOWN = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401"})


class S3Files(BucketFiles):
    """A prefix of a bucket of Amazon's, or of another server's that the environment or a profile names."""

    scheme = "s3"
    make = "aws s3 mb"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        try:
            import s3fs  # noqa: F401 - said here, where the store is named
        except ImportError:
            raise StoreUnavailable(
                f"store {url}: stores on S3 need the package s3fs, which is not installed here: "
                f"`pip install 'marin-dsl[s3]'`, or {OTHER}",
                self.url,
            ) from None

    def _open(self) -> Any:
        from s3fs import S3FileSystem

        # A whole object is read by one request, not by one for its size and then several for its parts.
        fs = S3FileSystem(
            use_listings_cache=False,
            max_concurrency=1,
            config_kwargs={"retries": {"mode": "standard", "total_max_attempts": 4}},
        )
        fs.retries = 2  # around those of a request: what breaks while a reply is read
        return fs

    def entries(self) -> Iterable[Entry]:
        prefix = f"{self._key(self.root)}/".lstrip("/")
        pages = self._pages(prefix)
        while True:
            with self._complaining("list", "runs"):
                page = next(pages, None)
            if page is None:
                return
            for item in page.get("Contents", ()):
                # In whole seconds, which is all that is told of a single object: the two are compared.
                yield Entry(item["Key"].removeprefix(prefix), int(item["Size"]), moment_of(item) // 1)

    def _call(self, method: str, **given: Any) -> dict[str, Any]:
        reply: dict[str, Any] = self.fs.call_s3(method, Bucket=self.bucket, **given)
        return reply

    def _upload(self, place: str, data: bytes, mark: str, *, new: bool = False) -> None:
        given = {"Key": self._key(place), "Body": data, "Metadata": {"writer": mark}}
        condition = {"IfNoneMatch": "*"} if new else {}
        for attempt in range(CONFLICTS):
            try:
                self._call("put_object", **given, **condition)
                return
            except Exception as error:
                _, status, _ = _said(error)
                if new and status == 412:
                    raise FileExistsError(place) from error
                if status != 409 or attempt == CONFLICTS - 1:
                    raise
            time.sleep(random.uniform(0, 0.05 * 2**attempt))

    def _replace_in_pieces(self, path: str, first: bytes, pieces: Iterator[bytes]) -> None:
        mark, place = uuid.uuid4().hex, self._place(path)
        with self._complaining("write", path):
            begun = self._call("create_multipart_upload", Key=self._key(place), Metadata={"writer": mark})
        upload = {"Key": self._key(place), "UploadId": begun["UploadId"]}
        try:
            sent = []
            for number, part in enumerate(_parts(itertools.chain((first,), pieces)), 1):
                with self._complaining("write", path):
                    reply = self._call("upload_part", **upload, PartNumber=number, Body=part)
                sent.append({"PartNumber": number, "ETag": reply["ETag"]})
            with self._complaining("write", path):
                self._complete(place, mark, upload, sent)
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong before is what matters
                self._call("abort_multipart_upload", **upload)
            raise

    def _complete(self, place: str, mark: str, upload: dict[str, Any], sent: list[dict[str, Any]]) -> None:
        try:
            self._call("complete_multipart_upload", **upload, MultipartUpload={"Parts": sent})
        except FileNotFoundError:
            # The reply was lost, and the request repeated when the upload was an object already.
            if self._mark(place) != mark:
                raise

    def _facts(self, place: str) -> dict[str, Any]:
        found = self._call("head_object", Key=self._key(place))
        return {
            "size": found["ContentLength"],
            "metadata": found.get("Metadata", {}),
            "LastModified": found["LastModified"],
        }

    def _listed(self, place: str) -> Iterator[str]:
        prefix = f"{self._key(place)}/"
        for page in self._pages(prefix, Delimiter="/"):
            yield from (item["Key"].removeprefix(prefix) for item in page.get("Contents", ()))
            yield from (item["Prefix"].removeprefix(prefix).rstrip("/") for item in page.get("CommonPrefixes", ()))

    def _pages(self, prefix: str, **given: Any) -> Iterator[dict[str, Any]]:
        while True:
            page = self._call("list_objects_v2", Prefix=prefix, **given)
            yield page
            if not page.get("IsTruncated"):
                return
            given["ContinuationToken"] = page["NextContinuationToken"]

    def _look(self) -> None:
        self._call("list_objects_v2", MaxKeys=1)

    def _complaint(self, doing: str, path: str, error: Exception) -> StoreUnavailable:
        what = f"store {self.url}: cannot {doing} {path}"
        code, status, message = _said(error)
        if code == "NoSuchBucket":
            return self._no_bucket()
        if code == "NotImplemented":
            return StoreUnavailable(f"store {self.url}: {UNSAFE}", self.url)
        if code in _NOT_KNOWN or status == 401 or _about_credentials(error):
            return StoreUnavailable(
                f"{what}: no valid AWS credentials: run `aws configure` or `aws sso login`, or set AWS_ACCESS_KEY_ID "
                f"and AWS_SECRET_ACCESS_KEY, or {OTHER}",
                self.url,
            )
        if status == 403:
            return StoreUnavailable(
                f"{what}: permission denied: give this account s3:GetObject, s3:PutObject and s3:DeleteObject on "
                f"arn:aws:s3:::{self.bucket}/* and s3:ListBucket on arn:aws:s3:::{self.bucket}, or {OTHER}",
                self.url,
            )
        if status is None and isinstance(error, OSError) and error.errno is not None:
            return unavailable(self.url, path, doing, error)
        reason = f"{type(error).__name__}: {error}".removesuffix(": ") if code is None else f"{code}: {message}"
        return StoreUnavailable(
            f"{what}: no proper answer after several tries ({reason}); try again later, or {OTHER}", self.url
        )


def _parts(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The parts of an upload: pieces, and later several of them at once."""
    for number in itertools.count():
        part = b"".join(itertools.islice(pieces, 2 ** (number // PARTS_OF_A_SIZE)))
        if not part:
            return
        yield part


def _said(error: BaseException | None) -> tuple[str | None, int | None, str]:
    """Code, HTTP status and message of what the server refused; s3fs makes errors of the system of that."""
    while error is not None and not hasattr(error, "response"):
        error = error.__cause__
    reply: dict[str, Any] = getattr(error, "response", None) or {}
    refusal = reply.get("Error", {})
    return refusal.get("Code"), reply.get("ResponseMetadata", {}).get("HTTPStatusCode"), refusal.get("Message", "")


def _about_credentials(error: Exception) -> bool:
    from botocore import exceptions

    kinds = (
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "SSOError",
        "TokenRetrievalError",
    )
    return isinstance(error, tuple(getattr(exceptions, kind) for kind in kinds if hasattr(exceptions, kind)))

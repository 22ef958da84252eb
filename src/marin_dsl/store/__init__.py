"""Blobs, results, failures, recipes, labels and runs on a local disk or an fsspec file system."""

from marin_dsl.store.files import StoreUnavailable
from marin_dsl.store.store import ContentDamaged, Store, StoredValue

__all__ = ["ContentDamaged", "Store", "StoreUnavailable", "StoredValue"]

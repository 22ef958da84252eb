"""Blobs, results, failures, recipes, labels and runs on a local disk, Google Cloud Storage or an fsspec file system."""

from marin_dsl.store.files import StoreUnavailable
from marin_dsl.store.remote import conditional_create
from marin_dsl.store.store import Store
from marin_dsl.store.values import ContentDamaged, StoredValue

__all__ = ["ContentDamaged", "Store", "StoreUnavailable", "StoredValue", "conditional_create"]

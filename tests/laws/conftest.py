import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from jaxtyping import install_import_hook

# Every annotated shape and dtype of the two packages is checked at run time while their tests run.
install_import_hook(["marin_models", "marin_kernels"], "beartype.beartype")

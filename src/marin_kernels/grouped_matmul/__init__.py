"""One matrix product a group of rows, groups of any sizes: what mixtures of experts spend their time in."""

from marin_kernels.grouped_matmul.dispatch import GroupedMatmulImplementation, grouped_matmul

__all__ = ["GroupedMatmulImplementation", "grouped_matmul"]

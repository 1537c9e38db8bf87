"""A matrix product as tiling rules see it, and what they decide about it."""

from __future__ import annotations

from scenarios.records import dataclass

#: Rows and columns of one cube block.
BLOCK = 16


def ceil_div(value: int, divisor: int) -> int:
    """The quotient, rounded up; `divisor` is positive."""
    return -(-value // divisor)


def align(value: int, multiple: int) -> int:
    """The next multiple of `multiple`."""
    return ceil_div(value, multiple) * multiple


@dataclass(frozen=True, slots=True)
class Product:
    """An m x k matrix times a k x n matrix.

    item_bytes: of an element of both inputs (2, 4, or 1 for INT8). out_bytes: of an output element. trans_a, trans_b:
    stored as k x m and n x k; PyTorch's linear weights (n x k) are trans_b. a_nz, b_nz: stored as FRACTAL_NZ.
    """

    m: int
    k: int
    n: int
    item_bytes: int = 2
    out_bytes: int = 2
    trans_a: bool = False
    trans_b: bool = False
    a_nz: bool = False
    b_nz: bool = False
    bias: bool = False

    @property
    def block_k(self) -> int:
        """Elements of k in a cube block: 32 bytes."""
        return 32 // self.item_bytes

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Blocks along m, k and n."""
        return ceil_div(self.m, BLOCK), ceil_div(self.k, self.block_k), ceil_div(self.n, BLOCK)

    @property
    def aligned(self) -> bool:
        """Whether m, k and n are whole blocks."""
        return self.m % BLOCK == 0 and self.k % self.block_k == 0 and self.n % BLOCK == 0


@dataclass(frozen=True, slots=True)
class ProductTiling:
    """Cores along m, n and k, and the tile that a core works on, in elements.

    cores: what the kernel starts on. tile_m, tile_n, tile_k: the block of outputs held in L0C and the k of one step
    through L0. load_k_a, load_k_b: k of one load of either side into L1.
    """

    cores: int
    m_cores: int
    n_cores: int
    k_cores: int
    tile_m: int
    tile_n: int
    tile_k: int
    load_k_a: int
    load_k_b: int

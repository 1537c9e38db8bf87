"""How CANN's tiling code lays kernels over the cores."""

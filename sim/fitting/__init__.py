"""Parameters from measurements: kernels by robust least squares, host costs from whole steps."""

"""Microbenchmarks: small Programs that only a calibration runs, timed op by op through a backend's own kernels.

What is timed is what is measured later: ops of the catalogue with the operands, the layouts and the forms that a
scenario's step gives them, among neighbours that push each other out of the caches. `plan` says which, `ops`, `memory`
and `links` time them, `bench` goes through all of them and saves as it goes.
"""

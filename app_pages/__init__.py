"""The pages of the what-if lab (`whatif app`), one file per page; what they share is in `parts/`.

A page draws: no physics, no parsing. What it shows comes from `sim`, `scenarios` and `device` as plain data.
"""

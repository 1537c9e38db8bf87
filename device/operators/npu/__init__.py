"""The fused calls of torch_npu, kind by kind: what stands over the plain-torch reference on an Ascend NPU.

`call` is the one door, `rules` is what the documentation demands of each call, `versions` says which wheel has what.
"""

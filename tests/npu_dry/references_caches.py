"""CPU kernels of the calls that norm, rotate and write at once, and of latent attention's products and reads."""

from __future__ import annotations

import torch


def _normed(x, gamma, epsilon):
    wide = x.double()
    return wide * (wide.square().mean(-1, keepdim=True) + epsilon).rsqrt() * gamma.double()


def _turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos.double() + torch.cat((-x[..., half:], x[..., :half]), -1) * sin.double()


def qkv_rms_norm_rope_cache(
    qkv,
    q_gamma,
    k_gamma,
    cos,
    sin,
    index,
    q_out,
    k_cache,
    v_cache,
    qkv_size,
    head_nums,
    *,
    k_scale=None,
    v_scale=None,
    k_offset=None,
    v_offset=None,
    epsilon=1e-6,
    cache_mode="PA_NZ",
    is_output_qkv=False,
):
    """Element e of head h of slot s lies at [block, h dim / 32 + e / 32, s in the block, e % 32]."""
    assert (cache_mode, is_output_qkv, k_offset, v_offset) == ("PA_NZ", False, None, None)
    rows, dim = qkv_size[0] * qkv_size[1], qkv_size[3]
    q, k, v = qkv.view(rows, -1, dim).split(list(head_nums), 1)
    angles = cos.unsqueeze(1), sin.unsqueeze(1)
    q_out.copy_(_turned(_normed(q, q_gamma, epsilon), *angles).flatten(1))
    k = _turned(_normed(k, k_gamma, epsilon), *angles)
    size = k_cache.shape[2]
    for new, scale, cache in ((k, k_scale, k_cache), (v.double(), v_scale, v_cache)):
        held = (new / scale.double()).round().clamp(-128, 127).to(cache.dtype)
        for row, slot in enumerate(index.tolist()):
            cache[slot // size, :, slot % size, :] = held[row].reshape(cache.shape[1], cache.shape[3])
    return tuple(qkv.new_empty(()) for _ in range(3))


def kv_rmsnorm_rope_cache_v2(
    kv,
    gamma,
    cos,
    sin,
    index,
    k_cache,
    ckv_cache,
    *,
    k_rope_scale=None,
    c_kv_scale=None,
    k_rope_offset=None,
    c_kv_offset=None,
    v=None,
    epsilon=1e-5,
    cache_mode="Norm",
    is_output_kv=False,
    k_cache_dtype=None,
    ckv_cache_dtype=None,
):
    """Neighbours are rotated together; k_cache takes the rotated part, ckv_cache the normed row."""
    assert cache_mode == "PA_BNSD"
    latent, pairs = kv.split((gamma.shape[0], cos.shape[-1]), -1)
    row = _normed(latent, gamma, epsilon).to(kv.dtype)
    rotated = _turned(torch.cat((pairs[..., 0::2], pairs[..., 1::2]), -1).double(), cos, sin).to(kv.dtype)
    size = k_cache.shape[1]
    for place, slot in enumerate(index.tolist()):
        k_cache[slot // size, slot % size] = rotated.view(-1, 1, rotated.shape[-1])[place]
        ckv_cache[slot // size, slot % size] = row.view(-1, 1, row.shape[-1])[place]
    return rotated, row


def interleave_rope(x, cos, sin):
    return _turned(torch.cat((x[..., 0::2], x[..., 1::2]), -1).double(), cos, sin).to(x.dtype)


def transpose_batchmatmul(
    x, weight, *, bias=None, scale=None, perm_x1=None, perm_x2=None, perm_y=None, batch_split_factor=1
):
    assert (bias, scale, batch_split_factor) == (None, None, 1)
    return (x.permute(perm_x1).double() @ weight.permute(perm_x2).double()).permute(perm_y).to(x.dtype).contiguous()


def gather_pa_kv_cache(
    key_cache, value_cache, block_tables, seq_lens, key, value, *, seq_offset=None, is_seq_lens_cumsum=False
):
    assert (seq_offset, is_seq_lens_cumsum) == (None, False)
    for cache, out in ((key_cache, key), (value_cache, value)):
        at, size = 0, cache.shape[1]
        for blocks, count in zip(block_tables.tolist(), seq_lens.tolist(), strict=True):
            for token in range(count):
                out[at], at = cache[blocks[token // size], token % size], at + 1


KERNELS = {
    "npu_qkv_rms_norm_rope_cache": qkv_rms_norm_rope_cache,
    "npu_kv_rmsnorm_rope_cache_v2": kv_rmsnorm_rope_cache_v2,
    "npu_interleave_rope": interleave_rope,
    "npu_transpose_batchmatmul": transpose_batchmatmul,
    "npu_gather_pa_kv_cache": gather_pa_kv_cache,
}

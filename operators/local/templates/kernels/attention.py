"""Attention without its matrix of scores: softmax(q @ k' * scale) @ v, a block of keys at a time.

The running maximum and sum are those of FlashAttention (Dao et al., 2022). Strides are in elements,
in the order (batch, head, row, feature).
"""

import triton
import triton.language as tl


@triton.jit
def attention_scores(
    q_ptrs,
    k_ptrs,
    rows_in,
    keys_in,
    FEATURES: tl.constexpr,
    Q_STEP: tl.constexpr,
    K_STEP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Products of queries (rows) and keys (columns), BLOCK_K features at a time."""
    scores = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in tl.range(0, FEATURES, BLOCK_K):
        features = start + tl.arange(0, BLOCK_K)
        known = features < FEATURES
        q = tl.load(
            q_ptrs + features[None, :] * Q_STEP, mask=rows_in[:, None] & known[None, :], other=0.0
        )
        k = tl.load(
            k_ptrs + features[:, None] * K_STEP, mask=keys_in[None, :] & known[:, None], other=0.0
        )
        scores = tl.dot(q, k, scores, input_precision=INPUT_PRECISION)
    return scores


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    HEADS: tl.constexpr,
    HEADS_PER_KEY: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    FEATURES: tl.constexpr,
    VALUES: tl.constexpr,
    WIDTH: tl.constexpr,
    Q_STRIDE: tl.constexpr,
    K_STRIDE: tl.constexpr,
    V_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    SCALE: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """WIDTH features of the values of BLOCK_M queries of one head.

    HEADS_PER_KEY heads of queries share one of keys and values. Scores are summed over BLOCK_K
    features at a time. With CAUSAL, query i sees keys up to i.
    """
    CHUNKS: tl.constexpr = (VALUES + WIDTH - 1) // WIDTH
    TILES: tl.constexpr = (QUERIES + BLOCK_M - 1) // BLOCK_M
    chunk = tl.program_id(0) % CHUNKS
    tile = tl.program_id(0) // CHUNKS % TILES
    batch = (tl.program_id(0) // CHUNKS // TILES // HEADS).to(tl.int64)
    head = (tl.program_id(0) // CHUNKS // TILES % HEADS).to(tl.int64)
    k_head = head // HEADS_PER_KEY
    q_ptrs = q_ptr + batch * Q_STRIDE[0] + head * Q_STRIDE[1]
    k_ptrs = k_ptr + batch * K_STRIDE[0] + k_head * K_STRIDE[1]
    v_ptrs = v_ptr + batch * V_STRIDE[0] + k_head * V_STRIDE[1]
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = chunk * WIDTH + tl.arange(0, WIDTH)
    largest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    value = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    stop = tl.minimum((tile + 1) * BLOCK_M, KEYS) if CAUSAL else KEYS
    for start in tl.range(0, stop, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        scores = attention_scores(
            q_ptrs + rows[:, None] * Q_STRIDE[2],
            k_ptrs + keys[None, :] * K_STRIDE[2],
            rows < QUERIES,
            keys < KEYS,
            FEATURES,
            Q_STRIDE[3],
            K_STRIDE[3],
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
            INPUT_PRECISION,
        )
        seen = (keys < KEYS)[None, :]
        if CAUSAL:
            seen = seen & (keys[None, :] <= rows[:, None])
        scores = tl.where(seen, scores * SCALE, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new_largest[:, None])
        kept = tl.exp(largest - new_largest)
        v = tl.load(
            v_ptrs + keys[:, None] * V_STRIDE[2] + columns[None, :] * V_STRIDE[3],
            mask=(keys < KEYS)[:, None] & (columns < VALUES)[None, :],
            other=0.0,
        )
        total = total * kept + tl.sum(weights, 1)
        value = value * kept[:, None]
        value = tl.dot(weights.to(v.dtype), v, value, input_precision=INPUT_PRECISION)
        largest = new_largest
    offsets = batch * OUT_STRIDE[0] + head * OUT_STRIDE[1]
    offsets = offsets + rows[:, None] * OUT_STRIDE[2] + columns[None, :] * OUT_STRIDE[3]
    mask = (rows < QUERIES)[:, None] & (columns < VALUES)[None, :]
    value = value / total[:, None]
    tl.store(out_ptr + offsets, value, mask)

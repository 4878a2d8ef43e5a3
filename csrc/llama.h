// The Llama decoder on a CPU in float32: one call per step computes all rows. Owns packed weights, no cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/kernels.h"

namespace agentq {

/// The weights of a layer; matrices are `[in, out]`.
struct LlamaLayer {
  std::vector<float> norm;
  Packed query, key_value, out;
  std::vector<float> mlp_norm;
  Packed gate_up, down;
};

/// A decoder of `width`: `heads` query heads and `key_heads` key heads of `size`, an MLP of `hidden`.
struct Llama {
  std::vector<LlamaLayer> layers;
  std::vector<float> norm;
  std::int64_t width, heads, key_heads, size, hidden;
  float eps, scale;
};

/// The last hidden states after each token of rows with a mask, and after the last token of the other rows.
///
///     x += W_o attend(rope(W_q n(x)), rope(W_k n(x)), W_v n(x))        n: root mean square norm, times its weight
///     x += W_down (silu(W_gate n(x)) * W_up n(x))
///
/// The last layer computes keys and values of every token, and the rest only where a state is returned.
///
/// @param rows  in the order of their tokens, without gaps; `states` `[layers, 2, key_heads, room, size]`, to which the
///              new keys and values are appended.
/// @param x  `[T, width]` embeddings; overwritten.
/// @param cos, sin  `[T, size]` of the tokens' positions; the halves of a row are equal.
/// @param out  `[N, width]`.
void decode(const Llama& model, std::span<const AttendRow> rows, float* x, const float* cos, const float* sin, float* out);

}  // namespace agentq

// Attention of decoding: few new tokens per row, each row with keys and values of its own. Owns no memory.
#pragma once

#include <cstdint>
#include <span>

namespace agentq {

/// A `[heads, tokens, size]` array of float32; each vector of `size` lies in one piece.
template <typename T>
struct HeadsView {
  T* data;
  std::int64_t heads, tokens, head_stride, token_stride;  // strides in floats

  T* at(std::int64_t head, std::int64_t token) const { return data + head * head_stride + token * token_stride; }
};

/// One row of a batch: its new tokens and its cache.
///
///     states   [2, heads, room, size]: keys, then values; `length` of `room` are filled after this step
///     tokens   `start` to `stop` of the batch, the last of the row's `length`
///     visible  [stop - start, length], 0 where a token does not see a key; null: every token sees all
struct AttendRow {
  float* states;
  std::int64_t room, length, start, stop;
  const std::uint8_t* visible;
};

/// Puts each row's new keys and values behind its cache and attends to all of it.
///
///     out[t, h] = sum_j softmax_j(scale * query[h, t] . key[j]) value[j]   over the keys j of the row that t sees
///
/// @param query  `[groups * heads, T, size]`; query head h reads key head h / groups.
/// @param key, value  `[heads, T, size]` of the new tokens.
/// @param out  `[T, groups * heads, size]`, contiguous.
void attend(HeadsView<const float> query, HeadsView<const float> key, HeadsView<const float> value, std::int64_t size,
            std::span<const AttendRow> rows, float scale, float* out);

}  // namespace agentq

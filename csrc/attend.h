// Attention for decoding: a few new tokens per row, and separate keys and values for each row. Owns no memory.
#pragma once

#include <cstdint>
#include <span>

namespace agentq {

/// A `[heads, tokens, size]` array of float32; each vector of `size` is contiguous.
template <typename T>
struct HeadsView {
  T* data;
  std::int64_t heads, tokens, head_stride, token_stride;  // strides in floats

  T* at(std::int64_t head, std::int64_t token) const { return data + head * head_stride + token * token_stride; }
};

/// One row of a batch: its new tokens and its cache.
///
///     states   [2, heads, room, size]: keys, then values; the first `length` of `room` are filled after this step
///     tokens   `start` to `stop` in the batch; they are the last of the row's `length` tokens
///     visible  [stop - start, length], 0 where a token does not see a key; null: every token sees every key
struct AttendRow {
  float* states;
  std::int64_t room, length, start, stop;
  const std::uint8_t* visible;
};

/// Appends each row's new keys and values to its cache and attends to the whole cache.
///
///     out[t, h] = sum_j softmax_j(scale * query[h, t] . key[j]) value[j]   over the row's keys j that t sees
///
/// @param query  `[groups * heads, T, size]`; query head h reads key head h / groups.
/// @param key, value  `[heads, T, size]`, for the new tokens.
/// @param out  `[T, groups * heads, size]`, contiguous.
void attend(HeadsView<const float> query, HeadsView<const float> key, HeadsView<const float> value, std::int64_t size,
            std::span<const AttendRow> rows, float scale, float* out);

}  // namespace agentq

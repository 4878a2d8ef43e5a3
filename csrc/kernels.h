// Vector kernels for decoding on a CPU, compiled for each vector width. They own no memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace agentq {

/// A matrix of float32: element (r, c) is `data[r * row_stride + c * column_stride]`.
struct MatrixView {
  const float* data;
  std::int64_t row_stride, column_stride;
};

/// A matrix b `[depth, columns]` in panels of as many columns as a tile has, each `[depth, panel]`; the last has zeros after
/// its columns.
struct Packed {
  std::vector<float> panels;
  std::int64_t depth, columns;
};

/// A `[heads, tokens, size]` array of float32; each vector of `size` is contiguous.
template <typename T>
struct HeadsView {
  T* data;
  std::int64_t heads, tokens, head_stride, token_stride;  // strides in floats

  T* at(std::int64_t head, std::int64_t token) const { return data + head * head_stride + token * token_stride; }
};

/// One row of a batch: its new tokens and its cache of one layer.
///
///     states   [2, heads, room, size]: keys, then values; the first `length` of `room` are filled after this step
///     tokens   `start` to `stop` in the batch; they are the last of the row's `length` tokens
///     visible  [stop - start, length - open]: which of the keys after the first `open` a token sees, 0 where it does
///              not; it sees the first `open` keys. Null: a token sees itself and all earlier keys
struct AttendRow {
  float* states;
  std::int64_t room, length, start, stop, open;
  const std::uint8_t* visible;

  /// The number of keys from the first to the last that the row's token `t` may see.
  std::int64_t reach(std::int64_t t) const { return visible ? length : length - (stop - start) + t + 1; }
  /// Whether token `t` sees key `j` of its reach.
  bool shows(std::int64_t t, std::int64_t j) const { return !visible || j < open || visible[t * (length - open) + j - open]; }
};

/// The kernels of one vector width.
struct Kernels {
  /// b `[depth, columns]`, packed.
  Packed (*pack)(MatrixView b, std::int64_t depth, std::int64_t columns);
  /// c = a b, or c += a b if `add`: a `[rows, depth]`, c `[rows, columns]`, of which a row begins `ldc` floats after the last.
  void (*product)(MatrixView a, std::int64_t rows, const Packed& b, float* c, std::int64_t ldc, bool add);
  /// out[t, h] = sum_j softmax_j(scale * query[h, t] . key[j]) value[j] over the row's keys j that t sees. `key_heads`
  /// divides the heads of `query`: head h reads key head h / (heads / key_heads). `out` `[T, heads, size]`, contiguous.
  void (*attend)(HeadsView<const float> query, std::int64_t key_heads, std::int64_t size, std::span<const AttendRow> rows,
                 float scale, float* out);
  /// out = weight * x / sqrt(mean(x^2) + eps), for each row of x `[rows, width]`.
  void (*rms_norm)(const float* x, std::int64_t rows, std::int64_t width, const float* weight, float eps, float* out);
  /// x[t, i] = silu(x[t, i]) x[t, hidden + i] for i < hidden: x `[rows, 2 hidden]`; silu(g) = g / (1 + exp(-g)).
  void (*gate)(float* x, std::int64_t rows, std::int64_t hidden);
  /// Draws `uniforms.size()` tokens from softmax(allowed / temperature), by inverting the cumulative distribution, and gives
  /// their log-probabilities under softmax(logits), in nats. `allowed` `[size]` are the logits, with minus infinity for
  /// forbidden tokens. Temperature 0 takes the likeliest token.
  void (*draw)(const float* logits, const float* allowed, std::int64_t size, float temperature, std::span<const double> uniforms,
               std::int64_t* tokens, float* logps);
};

/// Appends new keys and values `[heads, T, size]` to the rows, whose tokens are all new.
void append(HeadsView<const float> key, HeadsView<const float> value, std::int64_t size, std::span<const AttendRow> rows);

/// The kernels of the widest vectors that this processor has.
const Kernels& kernels();

}  // namespace agentq

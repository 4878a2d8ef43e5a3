#include "csrc/llama.h"

#include <algorithm>
#include <numeric>

namespace agentq {
namespace {

constexpr std::int64_t kChunk = 256;  // tokens computed at a time: what is kept between products fits the processor's cache

/// Rotary position embedding of `heads` vectors: (a, b) -> (a cos - b sin, b cos + a sin) for the halves a and b of each.
void rotate(float* x, std::int64_t heads, std::int64_t size, const float* cos, const float* sin) {
  const std::int64_t half = size / 2;
  for (std::int64_t h = 0; h < heads; ++h, x += size)
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = x[i], b = x[half + i];
      x[i] = a * cos[i] - b * sin[i];
      x[half + i] = b * cos[i] + a * sin[i];
    }
}

struct Chunk {
  std::vector<AttendRow> rows;  // tokens counted from the chunk's first
  bool cut;                     // whether the last row's prompt goes on in the next chunk
};

/// Takes the next chunk from `rows`, from `row` on. A row with a mask is not split.
Chunk next_chunk(std::span<const AttendRow> rows, std::size_t& row, std::int64_t& done) {
  Chunk chunk{{}, false};
  std::int64_t at = 0;
  while (row < rows.size() && at < kChunk) {
    AttendRow part = rows[row];
    const std::int64_t left = part.stop - part.start - done, count = part.visible ? left : std::min(left, kChunk - at);
    part.start = at;
    part.stop = at += count;
    part.length -= left - count;
    chunk.rows.push_back(part);
    chunk.cut = count < left;
    done = chunk.cut ? done + count : 0;
    row += chunk.cut ? 0 : 1;
  }
  return chunk;
}

/// The tokens whose last hidden states are returned. The rows then have only these.
std::vector<std::int64_t> keep_last(Chunk& chunk) {
  std::vector<std::int64_t> kept;
  for (AttendRow& row : chunk.rows) {
    const bool goes_on = chunk.cut && &row == &chunk.rows.back();
    const std::int64_t first = row.visible ? row.start : row.stop - (goes_on ? 0 : 1), stop = row.stop;
    row.start = static_cast<std::int64_t>(kept.size());
    for (std::int64_t t = first; t < stop; ++t) kept.push_back(t);
    row.stop = static_cast<std::int64_t>(kept.size());
  }
  return kept;
}

struct Space {
  std::vector<float> normed, query, states, seen, mlp;

  Space(const Llama& m, std::int64_t tokens) {
    const auto of = [tokens](std::int64_t width) { return static_cast<std::size_t>(tokens * width); };
    normed.resize(of(m.width));
    query.resize(of(m.heads * m.size));
    states.resize(of(2 * m.key_heads * m.size));
    seen.resize(of(m.heads * m.size));
    mlp.resize(of(2 * m.hidden));
  }
};

/// Returns the number of hidden states written to `out`.
std::int64_t decode_chunk(const Llama& m, Chunk& chunk, float* x, const float* cos, const float* sin, float* out) {
  const Kernels& k = kernels();
  std::int64_t n = chunk.rows.back().stop;
  Space s(m, n);
  float *normed = s.normed.data(), *query = s.query.data(), *states = s.states.data(), *seen = s.seen.data(), *mlp = s.mlp.data();
  const std::int64_t q_width = m.heads * m.size, kv_width = 2 * m.key_heads * m.size;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  for (const LlamaLayer& w : m.layers) {
    k.rms_norm(x, n, m.width, w.norm.data(), m.eps, normed);
    k.product({normed, m.width, 1}, n, w.key_value, states, kv_width, false);
    for (std::int64_t t = 0; t < n; ++t) rotate(states + t * kv_width, m.key_heads, m.size, cos + t * m.size, sin + t * m.size);
    const HeadsView<const float> key{states, m.key_heads, n, m.size, kv_width}, value{states + kv_width / 2, m.key_heads, n, m.size, kv_width};
    append(key, value, m.size, chunk.rows);
    if (&w == &m.layers.back()) {
      tokens = keep_last(chunk);
      n = static_cast<std::int64_t>(tokens.size());
      for (std::int64_t i = 0; i < n; ++i) {
        std::copy_n(x + tokens[i] * m.width, m.width, x + i * m.width);
        std::copy_n(normed + tokens[i] * m.width, m.width, normed + i * m.width);
      }
    }
    k.product({normed, m.width, 1}, n, w.query, query, q_width, false);
    for (std::int64_t i = 0; i < n; ++i) rotate(query + i * q_width, m.heads, m.size, cos + tokens[i] * m.size, sin + tokens[i] * m.size);
    k.attend({query, m.heads, n, m.size, q_width}, m.key_heads, m.size, chunk.rows, m.scale, seen);
    k.product({seen, q_width, 1}, n, w.out, x, m.width, true);
    k.rms_norm(x, n, m.width, w.mlp_norm.data(), m.eps, normed);
    k.product({normed, m.width, 1}, n, w.gate_up, mlp, 2 * m.hidden, false);
    k.gate(mlp, n, m.hidden);
    k.product({mlp, 2 * m.hidden, 1}, n, w.down, x, m.width, true);
    for (AttendRow& row : chunk.rows) row.states += kv_width * row.room;
  }
  k.rms_norm(x, n, m.width, m.norm.data(), m.eps, out);
  return n;
}

}  // namespace

void decode(const Llama& model, std::span<const AttendRow> rows, float* x, const float* cos, const float* sin, float* out) {
  std::size_t row = 0;
  std::int64_t done = 0;
  while (row < rows.size()) {
    Chunk chunk = next_chunk(rows, row, done);
    const std::int64_t count = chunk.rows.back().stop;
    out += decode_chunk(model, chunk, x, cos, sin, out) * model.width;
    x += count * model.width;
    cos += count * model.size;
    sin += count * model.size;
  }
}

}  // namespace agentq

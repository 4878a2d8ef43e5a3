// One body, compiled for each vector width; the widest that the processor has is chosen at run time.
#include "csrc/attend.h"

#include <algorithm>
#include <bit>
#include <vector>

#define AGENTQ_INLINE [[gnu::always_inline]] inline

namespace agentq {
namespace {

constexpr float kHidden = -1e30F;  // score of a key that a token does not see

/// exp(x) for x <= 0, relative error below 2e-7; 1e-38 below x = -87. Source: the polynomial of Cephes' expf.
AGENTQ_INLINE float exp_of(float x) {
  x = std::max(x, -87.0F);
  const float whole = static_cast<float>(static_cast<std::int32_t>(x * 1.44269504F - 0.5F));
  const float r = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(whole) + 127) << 23);
}

/// Turns scores into unnormalised softmax weights in place; returns their sum.
AGENTQ_INLINE float soften(float* scores, std::int64_t n) {
  float most = kHidden, sum = 0;
#pragma omp simd reduction(max : most)
  for (std::int64_t j = 0; j < n; ++j) most = std::max(most, scores[j]);
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < n; ++j) sum += scores[j] = exp_of(scores[j] - most);
  return sum;
}

/// Attention of one query over all keys of a head. `Size` 0: the size is known only at run time.
template <std::int64_t Size>
AGENTQ_INLINE void one(const float* query, const float* keys, const float* values, const std::uint8_t* visible, std::int64_t n,
                       std::int64_t given_size, float scale, float* scores, float* out) {
  const std::int64_t size = Size ? Size : given_size;
  for (std::int64_t j = 0; j < n; ++j) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t i = 0; i < size; ++i) dot += query[i] * keys[j * size + i];
    scores[j] = scale * dot;
  }
  if (visible)
    for (std::int64_t j = 0; j < n; ++j) scores[j] = visible[j] ? scores[j] : kHidden;
  const float share = 1.0F / soften(scores, n);
  constexpr std::int64_t kStep = 32;  // sums that stay in registers
  for (std::int64_t first = 0; first < size; first += kStep) {
    float sums[kStep] = {};
    const std::int64_t count = Size ? kStep : std::min(kStep, size - first);
    for (std::int64_t j = 0; j < n; ++j) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) sums[i] += scores[j] * values[j * size + first + i];
    }
    for (std::int64_t i = 0; i < count; ++i) out[first + i] = sums[i] * share;
  }
}

template <std::int64_t Size>
AGENTQ_INLINE void all(HeadsView<const float> query, HeadsView<const float> key, HeadsView<const float> value, std::int64_t size,
                       std::span<const AttendRow> rows, float scale, float* out) {
  const std::int64_t groups = query.heads / key.heads;
  std::vector<float> scores;
  for (const AttendRow& row : rows) {
    scores.resize(std::max(scores.size(), static_cast<std::size_t>(row.length)));
    const std::int64_t first = row.length - (row.stop - row.start);
    for (std::int64_t h = 0; h < key.heads; ++h) {
      float* keys = row.states + h * row.room * size;
      float* values = keys + key.heads * row.room * size;
      for (std::int64_t t = row.start; t < row.stop; ++t) {
        std::copy_n(key.at(h, t), size, keys + (first + t - row.start) * size);
        std::copy_n(value.at(h, t), size, values + (first + t - row.start) * size);
      }
      for (std::int64_t t = row.start; t < row.stop; ++t)
        for (std::int64_t q = h * groups; q < (h + 1) * groups; ++q) {
          const std::uint8_t* visible = row.visible ? row.visible + (t - row.start) * row.length : nullptr;
          one<Size>(query.at(q, t), keys, values, visible, row.length, size, scale, scores.data(), out + (t * query.heads + q) * size);
        }
    }
  }
}

#define AGENTQ_ATTEND                                                                                                  \
  (HeadsView<const float> query, HeadsView<const float> key, HeadsView<const float> value, std::int64_t size,          \
   std::span<const AttendRow> rows, float scale, float* out) {                                                         \
    if (size == 32) return all<32>(query, key, value, size, rows, scale, out);                                         \
    if (size == 64) return all<64>(query, key, value, size, rows, scale, out);                                         \
    if (size == 128) return all<128>(query, key, value, size, rows, scale, out);                                       \
    all<0>(query, key, value, size, rows, scale, out);                                                                 \
  }

void attend_anywhere AGENTQ_ATTEND
#ifdef __x86_64__
[[gnu::target("avx2,fma")]] void attend_avx2 AGENTQ_ATTEND
[[gnu::target("avx512f,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")]] void attend_avx512 AGENTQ_ATTEND
#endif

}  // namespace

void attend(HeadsView<const float> query, HeadsView<const float> key, HeadsView<const float> value, std::int64_t size,
            std::span<const AttendRow> rows, float scale, float* out) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return attend_avx512(query, key, value, size, rows, scale, out);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return attend_avx2(query, key, value, size, rows, scale, out);
#endif
  attend_anywhere(query, key, value, size, rows, scale, out);
}

}  // namespace agentq

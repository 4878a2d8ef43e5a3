// Seeds derived from several numbers.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace agentq {

/// A 64-bit seed from 32-bit words: the first 64 bits of the state that NumPy's SeedSequence makes of them.
///
/// A pool of four words takes in all words, so that each bit of them changes about half of the seed.
///
/// Source: O'Neill 2015, "Developing a seed_seq alternative"; numpy/random/bit_generator.pyx.
inline std::uint64_t seed_of(std::span<const std::uint32_t> words) noexcept {
  std::uint32_t factor = 0x43B0D7E5;
  const auto hashed = [&factor](std::uint32_t word, std::uint32_t step) {
    word ^= factor;
    factor *= step;
    word *= factor;
    return word ^ (word >> 16);
  };
  std::array<std::uint32_t, 4> pool;
  const auto mix_in = [&](std::uint32_t& place, std::uint32_t word) {
    const std::uint32_t x = 0xCA01F9DD * place - 0x4973F715 * hashed(word, 0x931E8875);
    place = x ^ (x >> 16);
  };
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hashed(i < words.size() ? words[i] : 0, 0x931E8875);
  for (std::size_t from = 0; from < pool.size(); ++from)
    for (std::size_t to = 0; to < pool.size(); ++to)
      if (from != to) mix_in(pool[to], pool[from]);
  for (std::size_t i = pool.size(); i < words.size(); ++i)
    for (std::uint32_t& place : pool) mix_in(place, words[i]);
  factor = 0x8B51F9DD;
  const std::uint64_t low = hashed(pool[0], 0x58F38DED);
  return low | std::uint64_t{hashed(pool[1], 0x58F38DED)} << 32;
}

}  // namespace agentq

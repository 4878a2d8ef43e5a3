// The snapshot reader on bytes that nobody wrote: it must refuse them or make a forest that works.
//
// With clang: -fsanitize=fuzzer,address,undefined -DAGENTQ_LIBFUZZER. Without libFuzzer the program changes good snapshots
// itself:
//
//     fuzz_snapshot RUNS SEED
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/forest.h"

namespace {

using namespace agentq;

/// Uses whatever loads: nothing here may crash, whatever numbers the file held.
bool try_to_use(std::span<const char> bytes) {
  try {
    Forest forest = Forest::from_bytes(bytes);
    const std::vector<TreeId> trees = forest.trees();
    for (const TreeId tree : trees)
      for (const NodeId node : forest.table(std::span(&tree, 1)).id) forest.path(node);
    forest.pairs({});
    for (const TreeId tree : trees) {
      const auto [status, ticket, node] = forest.ask_one(tree);
      if (status != AskStatus::kOk) continue;
      if (forest.children(node).empty()) forest.set_terminal(std::span(&ticket, 1));
      forest.tell_one(ticket, 1.0);
    }
    forest.add_trees(1);
    forest.drop(trees);
    return true;
  } catch (const std::invalid_argument&) {
  } catch (const ByteLimit&) {
  } catch (const std::bad_alloc&) {
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  try_to_use(bytes);
  const std::uint64_t sum = snapshot_checksum(bytes);  // and past the checksum
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  try_to_use(bytes);
  return 0;
}

#ifndef AGENTQ_LIBFUZZER
namespace {

std::string good(std::mt19937_64& random) {
  ForestConfig config;
  config.selection = static_cast<Selection>(random() % 4);
  config.exhaust = random() % 2 == 0;
  config.backup = static_cast<Backup>(random() % 2);
  config.squares = random() % 2 == 0;
  config.max_bytes = 1 << 20;
  Forest forest(config);
  forest.add_trees(1 + random() % 3);
  for (int i = 0; i < 12; ++i)
    for (const TreeId tree : forest.trees()) {
      const auto [status, ticket, node] = forest.ask_one(tree);
      if (status != AskStatus::kOk) continue;
      const auto width = static_cast<std::uint32_t>(1 + random() % 4);
      const std::vector<float> values(random() % 2 * width, 0.5f);
      if (forest.children(node).empty() && (!config.exhaust || random() % 4 > 0))
        forest.expand(std::span(&ticket, 1), std::span(&width, 1), values, {}, {});
      else if (forest.children(node).empty())
        forest.set_terminal(std::span(&ticket, 1));
      forest.tell_one(ticket, static_cast<double>(random() % 3));
    }
  if (random() % 2 == 0) {
    const TreeId first = 0;
    forest.drop(std::span(&first, 1));
  }
  return forest.to_bytes();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: fuzz_snapshot RUNS SEED\n"), 2;
  std::mt19937_64 random(std::strtoull(argv[2], nullptr, 10));
  long loaded = 0;
  const long runs = std::atol(argv[1]);
  std::string seed;
  for (long run = 0; run < runs; ++run) {
    if (run % 64 == 0) seed = good(random);
    std::string bytes = seed.substr(0, seed.size() - 8);
    constexpr std::uint32_t kWords[] = {0, 1, 2, 7, 31, 32, 64, 0x7F800000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    for (std::uint64_t change = random() % 4; change-- > 0;) {
      const std::size_t at = 12 + random() % (bytes.size() - 16) / 4 * 4;
      std::uint32_t word;
      std::memcpy(&word, bytes.data() + at, 4);
      switch (random() % 4) {
        case 0: word = kWords[random() % std::size(kWords)]; break;
        case 1: word += static_cast<std::uint32_t>(random() % 9) - 4; break;
        case 2: word ^= 1u << random() % 32; break;
        default: std::memcpy(&word, bytes.data() + random() % (bytes.size() - 4) / 4 * 4, 4);
      }
      std::memcpy(bytes.data() + at, &word, 4);
    }
    if (random() % 16 == 0) bytes.resize(random() % bytes.size());
    const std::uint64_t sum = snapshot_checksum(bytes);
    bytes.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
    loaded += try_to_use(bytes);
  }
  std::printf("%ld runs, %ld loaded, the others refused\n", runs, loaded);
}
#endif

// A forest as bytes and back. Little-endian:
//
//     "AGQFORST" | version u32 | selection u8, unvisited u8, exhaust u8, 0 u8 | c_exp f64 | trees u64 | nodes u64
//     | the columns of NodeColumns, one after the other | FNV-1a u64 of all before it
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "csrc/forest.h"

namespace agentq {
namespace {

static_assert(std::endian::native == std::endian::little, "snapshots are little-endian");

constexpr std::array<char, 8> kMagic = {'A', 'G', 'Q', 'F', 'O', 'R', 'S', 'T'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint8_t selection = 0, unvisited = 0, exhaust = 0, zero = 0;
  double c_exp = 0.0;
  std::uint64_t trees = 0, nodes = 0;
};
static_assert(sizeof(Header) == 40 && std::is_trivially_copyable_v<Header>);

std::uint64_t checksum(std::span<const char> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

[[noreturn]] void damaged(const std::string& why) {
  throw std::invalid_argument("a forest snapshot must be whole; this one is damaged: " + why);
}

std::size_t bytes_per_node() {
  std::size_t bytes = 0;
  NodeColumns{}.each([&](const auto& column) { bytes += sizeof(*column.data()); });
  return bytes;
}

Header read_header(std::span<const char> bytes) {
  Header header;
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw std::invalid_argument("a forest snapshot must start with AGQFORST; this is another kind of file");
  if (bytes.size() < sizeof(Header) + sizeof(std::uint64_t)) damaged(std::to_string(bytes.size()) + " bytes only");
  std::memcpy(&header, bytes.data(), sizeof(Header));
  if (header.version > kVersion)
    throw std::invalid_argument("the version of a forest snapshot must be at most " + std::to_string(kVersion) +
                                "; got " + std::to_string(header.version) + ", written by a newer agentq");
  const std::size_t body = bytes.size() - sizeof(std::uint64_t);
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + body, sizeof(sum));
  if (sum != checksum(bytes.first(body))) damaged("its checksum does not match");
  if (header.version < 1 || header.selection != 0 || header.unvisited > 1 || header.exhaust > 1)
    damaged("its settings are unknown");
  if (header.nodes >= kNoNode || header.trees > header.nodes || header.trees > std::numeric_limits<TreeId>::max() ||
      body != sizeof(Header) + header.nodes * bytes_per_node())
    damaged("its length does not fit its counts");
  return header;
}

}  // namespace

std::string Forest::to_bytes() const {
  Header header;
  header.selection = static_cast<std::uint8_t>(config_.selection);
  header.unvisited = static_cast<std::uint8_t>(config_.unvisited);
  header.exhaust = config_.exhaust ? 1 : 0;
  header.c_exp = config_.c_exp;
  header.trees = num_trees();
  header.nodes = num_nodes();
  std::string bytes;
  bytes.reserve(sizeof(Header) + num_nodes() * bytes_per_node() + sizeof(std::uint64_t));
  bytes.append(reinterpret_cast<const char*>(&header), sizeof(Header));
  nodes_.each([&](const auto& column) {
    const std::size_t size = num_nodes() * sizeof(*column.data());
    if (static_cast<const void*>(&column) == &nodes_.in_flight)
      bytes.append(size, '\0');
    else if (size > 0)
      bytes.append(reinterpret_cast<const char*>(column.data()), size);
  });
  const std::uint64_t sum = checksum(bytes);
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  return bytes;
}

Forest Forest::from_bytes(std::span<const char> bytes) {
  const Header header = read_header(bytes);
  ForestConfig config;
  config.selection = static_cast<Selection>(header.selection);
  config.unvisited = static_cast<Unvisited>(header.unvisited);
  config.exhaust = header.exhaust != 0;
  config.c_exp = header.c_exp;
  Forest forest(config);
  forest.reserve(header.nodes);
  forest.append(header.nodes, kNoNode, 0, 0);
  const char* from = bytes.data() + sizeof(Header);
  forest.nodes_.each([&](auto& column) {
    const std::size_t size = column.size() * sizeof(*column.data());
    if (size > 0) std::memcpy(column.data(), from, size);
    from += size;
  });
  for (NodeId node = 0; node < header.nodes; ++node)
    if (forest.nodes_.parent[node] == kNoNode) forest.roots_.push_back(node);
  if (forest.roots_.size() != header.trees) damaged("its trees and roots differ in number");
  forest.check_structure();
  return forest;
}

/// Refuses columns that no sequence of calls can have made and that would send a descent astray.
void Forest::check_structure() const {
  std::size_t tree = 0;
  for (NodeId node = 0; node < num_nodes(); ++node) {
    const NodeId parent = nodes_.parent[node], first = nodes_.first_child[node];
    const std::uint64_t count = nodes_.child_count[node];
    const bool is_root = parent == kNoNode;
    if (is_root ? (nodes_.depth[node] != 0 || static_cast<std::size_t>(nodes_.tree[node]) != tree++)
                : (parent >= node || nodes_.tree[node] != nodes_.tree[parent] ||
                   nodes_.depth[node] != nodes_.depth[parent] + 1 || node < nodes_.first_child[parent] ||
                   node - nodes_.first_child[parent] >= nodes_.child_count[parent]))
      damaged("node " + std::to_string(node) + " does not fit its parent");
    if (count == 0 ? first != kNoNode : (first <= node || first + count > num_nodes()))
      damaged("node " + std::to_string(node) + " does not fit its children");
    bool all_exhausted = config_.exhaust;
    for (NodeId child = first; child < first + count; ++child) {
      if (nodes_.parent[child] != node) damaged("node " + std::to_string(child) + " does not fit its parent");
      all_exhausted = all_exhausted && is_exhausted(child);
    }
    const bool terminal = (nodes_.flags[node] & kTerminal) != 0;
    if (count > 0 ? (terminal || is_exhausted(node) != all_exhausted)
                  : (is_exhausted(node) && !(terminal && config_.exhaust)))
      damaged("node " + std::to_string(node) + " has flags that cannot be");
    if (nodes_.in_flight[node] != 0) damaged("node " + std::to_string(node) + " is in flight");
  }
}

}  // namespace agentq

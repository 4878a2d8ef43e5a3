// Binding of csrc/attend.h. Checks that every view lies inside its array.
#include "bindings/attend.h"

#include <pybind11/numpy.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/attend.h"

namespace agentq::bindings {
namespace {

using Floats = py::array_t<float>;
using Rows = std::vector<py::array_t<float, py::array::c_style>>;
using Visible = std::vector<std::optional<py::array_t<bool, py::array::c_style>>>;

[[noreturn]] void refuse(const std::string& must, std::int64_t got) {
  throw std::invalid_argument(must + "; got " + std::to_string(got));
}

HeadsView<const float> view_of(const Floats& array, const char* name) {
  constexpr auto kFloat = static_cast<py::ssize_t>(sizeof(float));
  if (array.ndim() != 3 || array.shape(2) < 1 || array.strides(2) != kFloat || array.strides(0) % kFloat || array.strides(1) % kFloat)
    refuse(std::string(name) + " must be [heads, T, size] of float32, the last axis contiguous", array.ndim());
  return {array.data(), array.shape(0), array.shape(1), array.strides(0) / kFloat, array.strides(1) / kFloat};
}

Floats attend_rows(const Floats& query, const Floats& key, const Floats& value, Rows& states,
                   const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& stops,
                   const std::vector<std::int64_t>& lengths, const Visible& visible, float scale) {
  const auto q = view_of(query, "query"), k = view_of(key, "key"), v = view_of(value, "value");
  const std::int64_t size = query.shape(2);
  if (k.heads < 1 || q.heads % k.heads || v.heads != k.heads || k.tokens != q.tokens || v.tokens != q.tokens ||
      key.shape(2) != size || value.shape(2) != size)
    refuse("query, key and value must have the same T and size, query a multiple of key's heads", k.heads);
  const std::size_t n = states.size();
  if (starts.size() != n || stops.size() != n || lengths.size() != n || visible.size() != n)
    refuse("starts, stops, lengths and visible must have one entry per row (" + std::to_string(n) + ")",
           static_cast<std::int64_t>(starts.size()));
  std::vector<AttendRow> rows;
  for (std::size_t i = 0; i < n; ++i) {
    auto& held = states[i];
    if (held.ndim() != 4 || held.shape(0) != 2 || held.shape(1) != k.heads || held.shape(3) != size)
      refuse("states must be [2, heads, room, size]", held.ndim());
    if (starts[i] < 0 || starts[i] >= stops[i] || stops[i] > q.tokens) refuse("a row's tokens must lie in the batch", stops[i]);
    if (lengths[i] < stops[i] - starts[i] || lengths[i] > held.shape(2)) refuse("a row's keys must fit its room", lengths[i]);
    const auto& seen = visible[i];
    if (seen && (seen->ndim() != 2 || seen->shape(0) != stops[i] - starts[i] || seen->shape(1) != lengths[i]))
      refuse("visible must be [tokens, keys] of its row", seen->ndim());
    const auto* shown = seen ? reinterpret_cast<const std::uint8_t*>(seen->data()) : nullptr;
    rows.push_back({held.mutable_data(), held.shape(2), lengths[i], starts[i], stops[i], shown});
  }
  Floats out({q.tokens, q.heads, size});
  float* to = out.mutable_data();
  const py::gil_scoped_release release;
  attend(q, k, v, size, rows, scale, to);
  return out;
}

}  // namespace

void bind_attend(py::module_& m) {
  using namespace py::literals;
  m.def("attend_rows", &attend_rows, "query"_a.noconvert(), "key"_a.noconvert(), "value"_a.noconvert(), "states"_a.noconvert(),
        "starts"_a, "stops"_a, "lengths"_a, "visible"_a, "scale"_a);
}

}  // namespace agentq::bindings

// Bindings of csrc/kernels.h and csrc/llama.h. They check that every view lies inside its array.
#include "bindings/decoding.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/llama.h"

namespace agentq::bindings {
namespace {

using Floats = py::array_t<float>;
using Matrix = py::array_t<float, py::array::c_style>;
using Visible = std::vector<std::optional<py::array_t<bool, py::array::c_style>>>;
using Counts = std::vector<std::int64_t>;

[[noreturn]] void refuse(const std::string& must, std::int64_t got) {
  throw std::invalid_argument(must + "; got " + std::to_string(got));
}

HeadsView<const float> view_of(const Floats& array, const char* name) {
  constexpr auto kFloat = static_cast<py::ssize_t>(sizeof(float));
  if (array.ndim() != 3 || array.shape(2) < 1 || array.strides(2) != kFloat || array.strides(0) % kFloat || array.strides(1) % kFloat)
    refuse(std::string(name) + " must be [heads, T, size] of float32, the last axis contiguous", array.ndim());
  return {array.data(), array.shape(0), array.shape(1), array.strides(0) / kFloat, array.strides(1) / kFloat};
}

/// The mask of one row, which has `tokens` new ones.
const std::uint8_t* mask_of(const Visible::value_type& seen, std::int64_t tokens, std::int64_t keys) {
  if (!seen) return nullptr;
  if (seen->ndim() != 2 || seen->shape(0) != tokens || seen->shape(1) != keys)
    refuse("visible must be [tokens, keys] of its row", seen->ndim());
  return reinterpret_cast<const std::uint8_t*>(seen->data());
}

Floats attend_rows(const Floats& query, const Floats& key, const Floats& value, std::vector<Matrix>& states, const Counts& starts,
                   const Counts& stops, const Counts& lengths, const Visible& visible, float scale) {
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
    const std::int64_t count = stops[i] - starts[i];
    if (lengths[i] < count || lengths[i] > held.shape(2)) refuse("a row's keys must fit its room", lengths[i]);
    rows.push_back({held.mutable_data(), held.shape(2), lengths[i], starts[i], stops[i], 0, mask_of(visible[i], count, lengths[i])});
  }
  Floats out({q.tokens, q.heads, size});
  float* to = out.mutable_data();
  const py::gil_scoped_release release;
  append(k, v, size, rows);
  kernels().attend(q, k.heads, size, rows, scale, to);
  return out;
}

py::tuple draw_tokens(const Matrix& logits, const Matrix& allowed, const py::array_t<double, py::array::c_style>& uniforms,
                      const py::array_t<double, py::array::c_style>& temperatures) {
  if (logits.ndim() != 2 || logits.shape(1) < 1 || allowed.ndim() != 2 || allowed.shape(0) != logits.shape(0) ||
      allowed.shape(1) != logits.shape(1))
    refuse("logits and allowed must be [N, V]", logits.ndim());
  const py::ssize_t n = logits.shape(0), size = logits.shape(1);
  if (uniforms.ndim() != 2 || uniforms.shape(0) != n || temperatures.ndim() != 1 || temperatures.shape(0) != n)
    refuse("uniforms must be [N, M] and temperatures [N], with N", n);
  const py::ssize_t draws = uniforms.shape(1);
  py::array_t<std::int64_t> tokens({n, draws});
  Floats logps({n, draws});
  auto* to = tokens.mutable_data();
  auto* told = logps.mutable_data();
  {
    const py::gil_scoped_release release;
    for (py::ssize_t i = 0; i < n; ++i)
      kernels().draw(logits.data() + i * size, allowed.data() + i * size, size, static_cast<float>(temperatures.data()[i]),
                     {uniforms.data() + i * draws, static_cast<std::size_t>(draws)}, to + i * draws, told + i * draws);
  }
  return py::make_tuple(tokens, logps);
}

std::vector<float> copy_of(const Matrix& array, std::int64_t size) {
  if (array.ndim() != 1 || array.size() != size) refuse("a norm must be [width]", array.size());
  return {array.data(), array.data() + size};
}

/// Rows `first` to `stop` of a weight `[out, in]`, as a packed matrix `[in, out]`.
Packed packed(const Matrix& weight, std::int64_t first, std::int64_t stop, std::int64_t in) {
  if (weight.ndim() != 2 || weight.shape(0) < stop || weight.shape(1) != in)
    refuse("weights must be [out, in] and fit each other; the width in must be " + std::to_string(in), weight.ndim());
  return kernels().pack({weight.data() + first * in, 1, in}, in, stop - first);
}

class PackedLlama {
 public:
  PackedLlama(const std::vector<std::array<Matrix, 6>>& layers, const Matrix& norm, std::int64_t heads, std::int64_t key_heads,
              float eps, float scale) {
    if (layers.empty() || layers[0][1].ndim() != 2 || layers[0][4].ndim() != 2) refuse("a model must have layers", 0);
    if (key_heads < 1 || heads < key_heads || heads % key_heads) refuse("heads must be a multiple of key_heads", heads);
    const std::int64_t width = norm.size(), size = layers[0][1].shape(0) / (heads + 2 * key_heads), hidden = layers[0][4].shape(0) / 2;
    if (width < 1 || hidden < 1 || size < 2 || size % 2) refuse("a model must have a width and heads of an even size", size);
    model_ = {{}, copy_of(norm, width), width, heads, key_heads, size, hidden, eps, scale};
    const std::int64_t query = heads * size, all = query + 2 * key_heads * size;
    for (const auto& [attend_norm, qkv, out, mlp_norm, gate_up, down] : layers)
      model_.layers.push_back({copy_of(attend_norm, width), packed(qkv, 0, query, width), packed(qkv, query, all, width),
                               packed(out, 0, width, query), copy_of(mlp_norm, width), packed(gate_up, 0, 2 * hidden, width),
                               packed(down, 0, width, hidden)});
  }

  Floats decode(Matrix& x, const Matrix& cos, const Matrix& sin, std::vector<Matrix>& states, const Counts& counts,
                const Counts& lengths, const Counts& opens, const Visible& visible) const {
    const std::size_t n = states.size();
    if (counts.size() != n || lengths.size() != n || opens.size() != n || visible.size() != n)
      refuse("counts, lengths, opens and visible must have one entry per row (" + std::to_string(n) + ")",
             static_cast<std::int64_t>(counts.size()));
    std::vector<AttendRow> rows;
    std::int64_t at = 0, returned = 0;
    for (std::size_t i = 0; i < n; ++i) {
      auto& held = states[i];
      const auto layers = static_cast<py::ssize_t>(model_.layers.size());
      if (held.ndim() != 5 || held.shape(0) != layers || held.shape(1) != 2 || held.shape(2) != model_.key_heads ||
          held.shape(4) != model_.size)
        refuse("states must be [layers, 2, heads, room, size]", held.ndim());
      if (counts[i] < 1 || lengths[i] < counts[i] || lengths[i] > held.shape(3)) refuse("a row's keys must fit its room", lengths[i]);
      if (opens[i] < 0 || opens[i] > lengths[i]) refuse("open keys must be among the row's", opens[i]);
      const std::uint8_t* seen = mask_of(visible[i], counts[i], lengths[i] - opens[i]);
      rows.push_back({held.mutable_data(), held.shape(3), lengths[i], at, at + counts[i], opens[i], seen});
      at += counts[i];
      returned += seen ? counts[i] : 1;
    }
    const auto fits = [at](const Matrix& array, std::int64_t width) {
      return array.ndim() == 2 && array.shape(0) == at && array.shape(1) == width;
    };
    if (!fits(x, model_.width) || !fits(cos, model_.size) || !fits(sin, model_.size))
      refuse("x must be [T, width], cos and sin [T, size], T the tokens of all rows", at);
    Floats out({returned, model_.width});
    float *from = x.mutable_data(), *to = out.mutable_data();
    const py::gil_scoped_release release;
    agentq::decode(model_, rows, from, cos.data(), sin.data(), to);
    return out;
  }

 private:
  Llama model_;
};

}  // namespace

void bind_decoding(py::module_& m) {
  using namespace py::literals;
  m.def("attend_rows", &attend_rows, "query"_a.noconvert(), "key"_a.noconvert(), "value"_a.noconvert(), "states"_a.noconvert(),
        "starts"_a, "stops"_a, "lengths"_a, "visible"_a, "scale"_a);
  m.def("draw_tokens", &draw_tokens, "logits"_a.noconvert(), "allowed"_a.noconvert(), "uniforms"_a.noconvert(),
        "temperatures"_a.noconvert());
  py::class_<PackedLlama>(m, "Llama")
      .def(py::init<const std::vector<std::array<Matrix, 6>>&, const Matrix&, std::int64_t, std::int64_t, float, float>(), "layers"_a.noconvert(),
           "norm"_a.noconvert(), "heads"_a, "key_heads"_a, "eps"_a, "scale"_a)
      .def("decode", &PackedLlama::decode, "x"_a.noconvert(), "cos"_a.noconvert(), "sin"_a.noconvert(), "states"_a.noconvert(),
           "counts"_a, "lengths"_a, "opens"_a, "visible"_a);
}

}  // namespace agentq::bindings

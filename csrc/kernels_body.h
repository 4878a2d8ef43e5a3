// The body of csrc/kernels.cc, included once per vector width: AGENTQ_LANES floats per vector, AGENTQ_TARGET the attribute
// of every function.

constexpr std::int64_t kLanes = AGENTQ_LANES, kPanel = 2 * kLanes;  // a panel: the columns of a tile
constexpr int kRows = kLanes == 16 ? 8 : 6;                         // rows of a tile, whose sums stay in registers

using Vec = float __attribute__((vector_size(4 * AGENTQ_LANES)));
using Whole = std::int32_t __attribute__((vector_size(4 * AGENTQ_LANES)));
using Loose = float __attribute__((vector_size(4 * AGENTQ_LANES), aligned(4), may_alias));

AGENTQ_TARGET inline Vec load(const float* from) { return *reinterpret_cast<const Loose*>(from); }
AGENTQ_TARGET inline void store(float* to, Vec v) { *reinterpret_cast<Loose*>(to) = v; }
AGENTQ_TARGET inline std::int64_t whole_vectors(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }
AGENTQ_TARGET inline float* room(std::vector<float>& in, std::int64_t n) {
  if (in.size() < static_cast<std::size_t>(n)) in.resize(static_cast<std::size_t>(n));
  return in.data();
}

/// exp(x) for x <= 0, relative error below 2e-7; 1e-38 below x = -87. Source: the polynomial of Cephes' expf.
AGENTQ_TARGET inline Vec exp_of(Vec x) {
  x = x < -87.0F ? Vec{} - 87.0F : x;
  const Whole exponent = __builtin_convertvector(x * 1.44269504F - 0.5F, Whole);
  const Vec whole = __builtin_convertvector(exponent, Vec);
  const Vec r = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  Vec p = Vec{} + 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return p * reinterpret_cast<Vec>((exponent + 127) << 23);
}

// ---- the matrix product, by tiles of up to kRows rows and kPanel columns

template <int Rows>
AGENTQ_TARGET inline void tile(MatrixView a, const float* b, std::int64_t depth, float* c, std::int64_t ldc,
                               std::int64_t columns, bool add) {
  Vec sums[Rows][2] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vec left = load(b + k * kPanel), right = load(b + k * kPanel + kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const float each = a.data[r * a.row_stride + k * a.column_stride];
      sums[r][0] += each * left;
      sums[r][1] += each * right;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    float* to = c + r * ldc;
    if (columns == kPanel) {
      store(to, add ? load(to) + sums[r][0] : sums[r][0]);
      store(to + kLanes, add ? load(to + kLanes) + sums[r][1] : sums[r][1]);
    } else {
      float whole[kPanel];
      store(whole, sums[r][0]);
      store(whole + kLanes, sums[r][1]);
      for (std::int64_t n = 0; n < columns; ++n) to[n] = add ? to[n] + whole[n] : whole[n];
    }
  }
}

template <int Rows>
AGENTQ_TARGET inline void tile_of(std::int64_t rows, MatrixView a, const float* b, std::int64_t depth, float* c,
                                  std::int64_t ldc, std::int64_t columns, bool add) {
  if (rows == Rows) return tile<Rows>(a, b, depth, c, ldc, columns, add);
  if constexpr (Rows > 1) tile_of<Rows - 1>(rows, a, b, depth, c, ldc, columns, add);
}

/// The first `columns` columns of the product with a panel b `[depth, kPanel]`.
AGENTQ_TARGET void panel(MatrixView a, std::int64_t rows, std::int64_t depth, const float* b, std::int64_t columns, float* c,
                         std::int64_t ldc, bool add) {
  for (std::int64_t m = 0; m < rows; m += kRows, a.data += kRows * a.row_stride)
    tile_of<kRows>(std::min<std::int64_t>(kRows, rows - m), a, b, depth, c + m * ldc, ldc, columns, add);
}

AGENTQ_TARGET Packed pack(MatrixView b, std::int64_t depth, std::int64_t columns) {
  Packed packed{std::vector<float>(static_cast<std::size_t>(depth * ((columns + kPanel - 1) / kPanel * kPanel))), depth, columns};
  for (std::int64_t n = 0; n < columns; ++n)
    for (std::int64_t k = 0; k < depth; ++k)
      packed.panels[static_cast<std::size_t>((n / kPanel * depth + k) * kPanel + n % kPanel)] = b.data[k * b.row_stride + n * b.column_stride];
  return packed;
}

AGENTQ_TARGET void product(MatrixView a, std::int64_t rows, const Packed& b, float* c, std::int64_t ldc, bool add) {
  for (std::int64_t n = 0; n < b.columns; n += kPanel)
    panel(a, rows, b.depth, b.panels.data() + n * b.depth, std::min(kPanel, b.columns - n), c + n, ldc, add);
}

// ---- element by element

AGENTQ_TARGET void rms_norm(const float* x, std::int64_t rows, std::int64_t width, const float* weight, float eps, float* out) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, out += width) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
    const float share = 1.0F / std::sqrt(sum / static_cast<float>(width) + eps);
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) out[i] = x[i] * share * weight[i];
  }
}

AGENTQ_TARGET void gate(float* x, std::int64_t rows, std::int64_t hidden) {
  for (std::int64_t r = 0; r < rows; ++r, x += 2 * hidden) {
    std::int64_t i = 0;
    for (; i + kLanes <= hidden; i += kLanes) {
      const Vec g = load(x + i), e = exp_of(g > 0.0F ? -g : g);  // 1 / (1 + exp(-g)) without an overflow
      store(x + i, g * (g > 0.0F ? Vec{} + 1.0F : e) / (1.0F + e) * load(x + hidden + i));
    }
    for (; i < hidden; ++i) x[i] = x[i] / (1.0F + std::exp(-x[i])) * x[hidden + i];
  }
}

// ---- drawing tokens

/// weights = exp((x - most) * share), 0 below exp(-87); returns their sum. `weights` has room for whole vectors.
AGENTQ_TARGET inline float weigh(const float* x, std::int64_t n, float most, float share, float* weights) {
  Vec total = {};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    float rest[kLanes];
    std::fill_n(rest, kLanes, -HUGE_VALF);
    if (n - i < kLanes) std::copy_n(x + i, n - i, rest);
    const Vec score = (load(n - i < kLanes ? rest : x + i) - most) * share, weight = score < -87.0F ? Vec{} : exp_of(score);
    store(weights + i, weight);
    total += weight;
  }
  float sum = 0;
  for (std::int64_t i = 0; i < kLanes; ++i) sum += total[i];
  return sum;
}

AGENTQ_TARGET inline float highest(const float* x, std::int64_t n) {
  float most = x[0];
#pragma omp simd reduction(max : most)
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, x[i]);
  return most;
}

AGENTQ_TARGET void draw(const float* logits, const float* allowed, std::int64_t size, float temperature,
                        std::span<const double> uniforms, std::int64_t* tokens, float* logps) {
  constexpr std::int64_t kBlock = 64;  // tokens that a search passes over at once
  std::vector<float> buffer, block_sums;
  float* weights = room(buffer, whole_vectors(size));
  const float most = highest(logits, size), log_sum = most + std::log(weigh(logits, size, most, 1.0F, weights));
  const float best = highest(allowed, size);
  float total = 0;
  if (temperature > 0) {
    weigh(allowed, size, best, 1.0F / temperature, weights);
    for (std::int64_t first = 0; first < size; first += kBlock) {
      const std::int64_t stop = std::min(size, first + kBlock);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = first; i < stop; ++i) sum += weights[i];
      block_sums.push_back(sum);
      total += sum;
    }
  }
  for (std::size_t n = 0; n < uniforms.size(); ++n) {
    std::int64_t token = 0;
    if (temperature > 0) {
      const float target = static_cast<float>(uniforms[n]) * total;
      float before = 0;
      std::size_t block = 0;
      while (block + 1 < block_sums.size() && before + block_sums[block] <= target) before += block_sums[block++];
      token = static_cast<std::int64_t>(block) * kBlock;
      const std::int64_t stop = std::min(size, token + kBlock);
      while (token < stop && (before += weights[token]) <= target) ++token;
      token = std::min(token, size - 1);
      while (token > 0 && weights[token] == 0) --token;  // where rounding passed the last token
    } else {
      while (token + 1 < size && allowed[token] < best) ++token;
    }
    tokens[n] = token;
    logps[n] = logits[token] - log_sum;
  }
}

#include "engine/cuda/kernels/sampling.h"

#include "engine/cuda/kernels/pack.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 256;
constexpr int64_t kTileIds = 1024;
constexpr int kTilesMax = static_cast<int>(kDeviceVocabMax / kTileIds);
constexpr float kGreedyBelow = 1e-5f;
constexpr double kMassOfOne = 4398046511104.0;  // 2^42

using Mass = unsigned long long;   // of probability, in units of 2^-42
using Order = unsigned long long;  // larger: more likely; equal logits by smaller id; never 0

__device__ __forceinline__ float NegativeInfinity() { return __uint_as_float(0xff800000u); }

__device__ __forceinline__ unsigned KeyOf(float logit) {
  const unsigned bits = __float_as_uint(logit + 0.0f);  // -0 becomes 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float LogitOf(Order order) {
  const auto key = static_cast<unsigned>(order >> 32);
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}
__device__ __forceinline__ Order OrderOf(float logit, int64_t id) {
  return (static_cast<Order>(KeyOf(logit)) << 32) | (0xffffffffu - static_cast<unsigned>(id));
}
__device__ __forceinline__ int IdOf(Order order) {
  return static_cast<int>(0xffffffffu - static_cast<unsigned>(order));
}

// ExpOfNegative of engine/sampling/softmax.cc, operation by operation: the same bits.
__device__ __forceinline__ float ExpOfNegative(float x) {
  constexpr float kLowest = -87.0f, kRounder = 12582912.0f;
  if (x < kLowest) return 0.0f;
  const float n = __fadd_rn(__fadd_rn(__fmul_rn(x, 1.44269504f), kRounder), -kRounder);
  const float r =
      __fadd_rn(__fadd_rn(x, -__fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
  float series = 1.0f / 720.0f;
  series = __fadd_rn(__fmul_rn(series, r), 1.0f / 120.0f);
  series = __fadd_rn(__fmul_rn(series, r), 1.0f / 24.0f);
  series = __fadd_rn(__fmul_rn(series, r), 1.0f / 6.0f);
  series = __fadd_rn(__fmul_rn(series, r), 0.5f);
  series = __fadd_rn(__fmul_rn(series, r), 1.0f);
  series = __fadd_rn(__fmul_rn(series, r), 1.0f);
  const float power = __int_as_float((static_cast<int>(n) + 127) << 23);
  return __fmul_rn(series, power);
}

// Turns a logit into a weight relative to the most likely token's.
struct Heat {
  float max;
  float temperature;
  float weight_min;  // lighter ones count nothing
};

__device__ __forceinline__ float WeightOf(float logit, const Heat& heat) {
  return ExpOfNegative(__fdiv_rn(__fadd_rn(logit, -heat.max), heat.temperature));
}
__device__ __forceinline__ Mass MassOf(float logit, const Heat& heat) {
  const float weight = WeightOf(logit, heat);
  return weight >= heat.weight_min ? static_cast<Mass>(static_cast<double>(weight) * kMassOfOne)
                                   : 0;
}

// `join` of all threads' values, at all threads.
template <typename T, typename F>
__device__ T Reduce(T value, F join) {
  SKEIN_SHARED(T, of_warps, [kWarps]);
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = join(value, __shfl_xor_sync(simt::kAllLanes, value, lanes));
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
  for (int warp = 1; warp < kWarps; ++warp) value = join(value, of_warps[warp]);
  __syncthreads();
  return value;
}

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// The most likely token; 0 when a logit is NaN or +inf, or all are -inf.
__device__ Order MostLikely(const float* logits, int64_t vocab) {
  Order best = 0;
  int bad = 0;
  for (int64_t id = threadIdx.x; id < vocab; id += kThreads) {
    const float logit = logits[id];
    if (!(logit < __uint_as_float(0x7f800000u))) bad = 1;
    const Order order = OrderOf(logit, id);
    best = order > best ? order : best;
  }
  best = Reduce(best, Largest());
  if (Reduce(bad, Largest()) != 0 || LogitOf(best) == NegativeInfinity()) return 0;
  return best;
}

__device__ void ApplyEdits(const SampleRow& row, const LogitEdit* edits, float* logits) {
  for (int i = static_cast<int>(threadIdx.x); i < row.edits_count; i += kThreads) {
    const LogitEdit edit = edits[row.edits_begin + i];
    float logit = logits[edit.id];
    if (edit.repeated != 0) {
      logit = logit > 0 ? __fdiv_rn(logit, row.repetition_penalty)
                        : __fmul_rn(logit, row.repetition_penalty);
    }
    if (edit.output_count > 0) {
      const auto count = static_cast<float>(edit.output_count);
      logit = __fadd_rn(logit, -__fmul_rn(row.frequency_penalty, count));
      logit = __fadd_rn(logit, -row.presence_penalty);
    }
    logit = __fadd_rn(logit, edit.bias);
    logits[edit.id] = edit.suppressed != 0 ? NegativeInfinity() : logit;
  }
}

// The target-th unit of mass, 1 … total, of a fraction of it.
__device__ Mass UnitAt(double fraction, Mass total) {
  const Mass unit = static_cast<Mass>(fraction * static_cast<double>(total)) + 1;
  return unit < total ? unit : total;
}

// Tokens in the order of their ids: the one whose share of the mass holds the uniform number.
__device__ int SampleFromAll(const float* logits, int64_t vocab, const Heat& heat, double uniform) {
  SKEIN_SHARED(Mass, tiles, [kTilesMax]);
  SKEIN_SHARED(Mass, before, );
  SKEIN_SHARED(int, found, );
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto count = static_cast<int>((vocab + kTileIds - 1) / kTileIds);
  Mass own = 0;
  for (int tile = warp; tile < count; tile += kWarps) {
    Mass mass = 0;
    const int64_t end = vocab < (tile + 1) * kTileIds ? vocab : (tile + 1) * kTileIds;
    for (int64_t id = tile * kTileIds + lane; id < end; id += 32) mass += MassOf(logits[id], heat);
    for (int lanes = 16; lanes > 0; lanes /= 2)
      mass += __shfl_xor_sync(simt::kAllLanes, mass, lanes);
    if (lane == 0) {
      tiles[tile] = mass;
      own += mass;
    }
  }
  const Mass target = UnitAt(uniform, Reduce(own, Sum()));  // its barriers publish the tiles
  if (threadIdx.x == 0) {
    int tile = 0;
    Mass reached = 0;
    while (tile + 1 < count && reached + tiles[tile] < target) reached += tiles[tile++];
    before = reached;
    found = tile;
  }
  __syncthreads();
  const int64_t first = found * kTileIds;
  Mass reached = before;
  __syncthreads();  // all have read `found`, which is next the token
  if (warp == 0) {
    for (int64_t start = first; start < vocab; start += 32) {
      const int64_t id = start + lane;
      Mass upto = id < vocab ? MassOf(logits[id], heat) : 0;
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const Mass below = __shfl_up_sync(simt::kAllLanes, upto, lanes);
        if (lane >= lanes) upto += below;
      }
      const unsigned past = __ballot_sync(simt::kAllLanes, reached + upto >= target);
      if (past != 0) {
        if (lane == 0) found = static_cast<int>(start + __ffs(static_cast<int>(past)) - 1);
        break;
      }
      reached += __shfl_sync(simt::kAllLanes, upto, 31);
    }
  }
  __syncthreads();
  const int token = found;
  __syncthreads();
  return token;
}

// Candidates: tokens that top_k or top_p may keep, and those in front of them.
struct Candidates {
  Order* orders;
  int count;
};

// All tokens with a logit of at least `least`. Their places depend on the threads' order, which is
// why everything below goes by Order.
__device__ Candidates Collect(const float* logits, int64_t vocab, float least, Order* orders) {
  SKEIN_SHARED(int, count, );
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int64_t id = threadIdx.x; id < vocab; id += kThreads) {
    if (logits[id] >= least) orders[atomicAdd(&count, 1)] = OrderOf(logits[id], id);
  }
  __syncthreads();
  const Candidates all = {orders, count};
  __syncthreads();
  return all;
}

// Going from the most likely on through the candidates of at least `cut`: the one at which the mass
// (or, without heat, the number) first reaches `target` ≥ 1. The last when none does. A radix
// select, 8 bits a round.
__device__ Order Select(const Candidates& all, Order cut, const Heat* heat, Mass target) {
  SKEIN_SHARED(Mass, bins, [kBins]);
  SKEIN_SHARED(Order, shared_prefix, );
  SKEIN_SHARED(Mass, shared_above, );
  Order prefix = 0, mask = 0;
  Mass above = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) bins[bin] = 0;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < all.count; i += kThreads) {
      const Order order = all.orders[i];
      if (order < cut || (order & mask) != prefix) continue;
      const Mass mass = heat == nullptr ? 1 : MassOf(LogitOf(order), *heat);
      if (mass != 0) atomicAdd(&bins[(order >> shift) & 0xff], mass);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int chosen = 0;
      Mass reached = above, chosen_above = above;
      for (int bin = kBins - 1; bin >= 0; --bin) {
        if (bins[bin] == 0) continue;
        chosen = bin;
        chosen_above = reached;
        reached += bins[bin];
        if (reached >= target) break;
      }
      shared_prefix = prefix | (static_cast<Order>(chosen) << shift);
      shared_above = chosen_above;
    }
    __syncthreads();
    prefix = shared_prefix;
    above = shared_above;
    mask |= static_cast<Order>(0xff) << shift;
  }
  __syncthreads();
  return prefix;
}

__device__ Mass MassFrom(const Candidates& all, Order cut, const Heat& heat) {
  Mass mass = 0;
  for (int i = static_cast<int>(threadIdx.x); i < all.count; i += kThreads) {
    if (all.orders[i] >= cut) mass += MassOf(LogitOf(all.orders[i]), heat);
  }
  return Reduce(mass, Sum());
}

// A logit that at least top_k tokens reach: each thread's largest is one token, so the top_k-th
// largest of those is such a bound. -inf for more than a block's threads.
__device__ float TopKBound(const float* logits, int64_t vocab, int top_k, Order* orders) {
  if (top_k > kThreads || vocab < kThreads) return NegativeInfinity();
  Order best = 0;
  for (int64_t id = threadIdx.x; id < vocab; id += kThreads) {
    const Order order = OrderOf(logits[id], id);
    best = order > best ? order : best;
  }
  orders[threadIdx.x] = best;
  __syncthreads();
  const Order bound = Select({orders, kThreads}, 0, nullptr, static_cast<Mass>(top_k));
  return LogitOf(bound);
}

// The smallest logit that top_p can need: all tokens less likely together weigh less than
// 1 - top_p.
__device__ float TopPBound(const float* logits, int64_t vocab, const Heat& heat, float top_p,
                           Mass total) {
  const double least =
      (1.0 - static_cast<double>(top_p)) * static_cast<double>(total) / static_cast<double>(vocab);
  // The inverse of the weight, a little lower: one token more is only a little more work.
  const double weight = least / kMassOfOne;
  if (!(weight > 1e-37)) return NegativeInfinity();
  const double logit =
      static_cast<double>(heat.max) + log(weight) * static_cast<double>(heat.temperature);
  return static_cast<float>(logit - 1e-3 * fabs(logit) - 1e-3);
}

__device__ Mass MassOfAll(const float* logits, int64_t vocab, const Heat& heat) {
  Mass mass = 0;
  for (int64_t id = threadIdx.x; id < vocab; id += kThreads) mass += MassOf(logits[id], heat);
  return Reduce(mass, Sum());
}

__device__ int SampleFromBest(const float* logits, int64_t vocab, const SampleRow& row,
                              const Heat& heat, Order* orders) {
  const Heat all_weights = {heat.max, heat.temperature, 0.0f};
  const bool top_k = row.top_k > 0 && row.top_k < vocab;
  const Mass of_all = top_k ? 0 : MassOfAll(logits, vocab, all_weights);
  const float bound = top_k ? TopKBound(logits, vocab, row.top_k, orders)
                            : TopPBound(logits, vocab, all_weights, row.top_p, of_all);
  const Candidates all = Collect(logits, vocab, bound, orders);
  Order cut = 0;
  if (top_k) cut = Select(all, cut, nullptr, static_cast<Mass>(row.top_k));
  if (row.top_p < 1.0f) {
    const Mass total = top_k ? MassFrom(all, cut, all_weights) : of_all;
    const double wanted = ceil(static_cast<double>(row.top_p) * static_cast<double>(total));
    cut = Select(all, cut, &all_weights, wanted < 1.0 ? 1 : static_cast<Mass>(wanted));
  }
  const Mass total = MassFrom(all, cut, heat);
  return IdOf(Select(all, cut, &heat, UnitAt(row.uniform, total)));
}

__device__ int Choose(const float* logits, int64_t vocab, const SampleRow& row, Order best,
                      Order* orders) {
  if (row.temperature < kGreedyBelow || row.top_k == 1) return IdOf(best);
  const Heat heat = {LogitOf(best), row.temperature, row.min_p};
  const bool top_k = row.top_k > 0 && row.top_k < vocab;
  if (!top_k && row.top_p >= 1.0f) return SampleFromAll(logits, vocab, heat, row.uniform);
  return SampleFromBest(logits, vocab, row, heat, orders);
}

// log Σ exp(logits), in f64.
__device__ double LogSumExp(const float* logits, int64_t vocab, float max) {
  const Heat heat = {max, 1.0f, 0.0f};
  double sum = 0.0;
  for (int64_t id = threadIdx.x; id < vocab; id += kThreads) {
    sum += static_cast<double>(WeightOf(logits[id], heat));
  }
  return static_cast<double>(max) + log(Reduce(sum, Sum()));
}

// The token's logprob and the most likely ones', one more a round.
__device__ void Logprobs(const float* logits, int64_t vocab, Order best, int token,
                         int alternatives, SampleOut* out) {
  const double normaliser = LogSumExp(logits, vocab, LogitOf(best));
  const int count = alternatives < vocab ? alternatives : static_cast<int>(vocab);
  Order last = ~static_cast<Order>(0);
  for (int place = 0; place < count; ++place) {
    Order next = 0;
    for (int64_t id = threadIdx.x; id < vocab; id += kThreads) {
      const Order order = OrderOf(logits[id], id);
      if (order < last && order > next) next = order;
    }
    last = Reduce(next, Largest());
    if (threadIdx.x == 0) {
      out->top_ids[place] = IdOf(last);
      out->top_logprobs[place] =
          static_cast<float>(static_cast<double>(logits[IdOf(last)]) - normaliser);
    }
  }
  if (threadIdx.x == 0) {
    out->logprob = static_cast<float>(static_cast<double>(logits[token]) - normaliser);
    out->top_count = count;
  }
}

__global__ void __launch_bounds__(kThreads)
    Sample(ConstMatrix logits, const SampleRow* rows, const LogitEdit* edits, float* edited,
           Order* orders, SampleOut* outs) {
  const SampleRow row = rows[blockIdx.x];
  SampleOut* out = outs + blockIdx.x;
  const int64_t vocab = logits.cols;
  const float* raw = RowOf<float>(logits, row.row);
  const Order best = MostLikely(raw, vocab);
  if (best == 0) {
    if (threadIdx.x == 0) out->state = SampleState::kBadLogits;
    return;
  }
  int token = row.given;
  if (token < 0) {
    const float* source = raw;
    Order best_edited = best;
    if (row.edits_count > 0) {
      float* copy = edited + blockIdx.x * vocab;
      for (int64_t id = threadIdx.x; id < vocab; id += kThreads) copy[id] = raw[id];
      __syncthreads();
      ApplyEdits(row, edits, copy);
      __syncthreads();
      source = copy;
      best_edited = MostLikely(copy, vocab);
      if (best_edited == 0) {
        if (threadIdx.x == 0) out->state = SampleState::kNothingLeft;
        return;
      }
    }
    token = Choose(source, vocab, row, best_edited, orders + blockIdx.x * vocab);
  }
  if (threadIdx.x == 0) {
    out->state = SampleState::kSampled;
    out->token = token;
    out->logprob = 0.0f;
    out->top_count = 0;
  }
  if (row.top_logprobs >= 0) Logprobs(raw, vocab, best, token, row.top_logprobs, out);
}

}  // namespace

void SampleKernel(ConstMatrix logits, const SampleRow* rows, const LogitEdit* edits, int count,
                  void* scratch, SampleOut* out, CudaStream stream) {
  SKEIN_CHECK(logits.dtype == DType::kF32 && logits.cols > 0);
  SKEIN_CHECK_MSG(logits.cols <= kDeviceVocabMax, "vocabulary: at most 2^20 tokens");
  if (count == 0) return;
  auto* orders = static_cast<Order*>(scratch);
  auto* edited = reinterpret_cast<float*>(orders + count * logits.cols);
  simt::Launch(Sample, static_cast<unsigned>(count), kThreads, 0, stream, logits, rows, edits,
               edited, orders, out);
}

}  // namespace skein::engine

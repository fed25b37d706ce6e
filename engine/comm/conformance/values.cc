#include "engine/comm/conformance/values.h"

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/f16.h"

namespace skein::engine {
namespace {

// What rank `rank` holds at `index`: not exact in any order of summing.
float ValueOf(int rank, int64_t index) {
  const auto mixed = static_cast<uint32_t>(index * 2654435761u + rank * 40503u + 12345u);
  return (static_cast<float>(mixed % 20011) / 20011.0f - 0.5f) * static_cast<float>(1 + rank % 3);
}

void Put(float value, DType dtype, std::byte* place) {
  if (dtype == DType::kF32) std::memcpy(place, &value, 4);
  const BF16 bf16 = ToBF16(value);
  const F16 f16 = static_cast<F16>(value);
  if (dtype == DType::kBF16) std::memcpy(place, &bf16, 2);
  if (dtype == DType::kF16) std::memcpy(place, &f16, 2);
}

float Get(const std::byte* place, DType dtype) {
  float f32 = 0;
  BF16 bf16;
  F16 f16;
  if (dtype == DType::kF32) std::memcpy(&f32, place, 4);
  if (dtype == DType::kBF16) std::memcpy(&bf16, place, 2);
  if (dtype == DType::kF16) std::memcpy(&f16, place, 2);
  if (dtype == DType::kF32) return f32;
  return dtype == DType::kBF16 ? ToFloat(bf16) : static_cast<float>(f16);
}

const Bytes& Cached(std::tuple<int, int, int64_t, DType> key, const std::function<Bytes()>& make) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int64_t, DType>, Bytes> cache;
  std::lock_guard<std::mutex> lock(mutex);
  auto [found, added] = cache.try_emplace(key);
  if (added) found->second = make();
  return found->second;
}

Bytes MakeValues(int rank, int64_t count, DType dtype) {
  Bytes values(count * BytesOf(dtype));
  for (int64_t i = 0; i < count; ++i) Put(ValueOf(rank, i), dtype, &values[i * BytesOf(dtype)]);
  return values;
}

// In pairs of neighbours, then in pairs of those sums, and so on; one without a neighbour waits.
float SumOf(std::vector<float> values) {
  while (values.size() > 1) {
    std::vector<float> pairs;
    for (size_t i = 0; i < values.size(); i += 2) {
      pairs.push_back(i + 1 < values.size() ? values[i] + values[i + 1] : values[i]);
    }
    values = std::move(pairs);
  }
  return values[0];
}

Bytes MakeSum(const std::vector<const Bytes*>& of_ranks, int64_t count, DType dtype) {
  Bytes rounded(count * BytesOf(dtype));
  std::vector<float> values(of_ranks.size());
  for (int64_t i = 0; i < count; ++i) {
    for (size_t r = 0; r < of_ranks.size(); ++r) {
      values[r] = Get(&(*of_ranks[r])[i * BytesOf(dtype)], dtype);
    }
    Put(SumOf(values), dtype, &rounded[i * BytesOf(dtype)]);
  }
  return rounded;
}

Bytes MakeText(uint64_t seed, size_t bytes) {
  Bytes text(bytes);
  for (std::byte& b : text)
    b = static_cast<std::byte>((seed = seed * 6364136223846793005u + 1) >> 56);
  return text;
}

}  // namespace

const Bytes& ValuesOf(int rank, int64_t count, DType dtype) {
  return Cached({0, rank, count, dtype}, [=] { return MakeValues(rank, count, dtype); });
}

const Bytes& SumOf(int ranks, int64_t count, DType dtype) {
  std::vector<const Bytes*> of_ranks;
  for (int r = 0; r < ranks; ++r) of_ranks.push_back(&ValuesOf(r, count, dtype));
  return Cached({1, ranks, count, dtype}, [&] { return MakeSum(of_ranks, count, dtype); });
}

const Bytes& Text(int seed, size_t bytes) {
  return Cached({2, seed, static_cast<int64_t>(bytes), DType::kF32},
                [=] { return MakeText(seed, bytes); });
}

}  // namespace skein::engine

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/base/dtype.h"
#include "engine/base/f16.h"
#include "engine/cuda/emulator/hopper.h"
#include "engine/cuda/emulator/hopper_state.h"

namespace skein::engine::simt {
namespace {

constexpr int kRows = 64, kDepth = 16;
constexpr uint32_t kOnItsWay = 0xffffffffu;  // NaN

using Group = void* const (&)[kWarpgroupThreads];

// A matrix descriptor (PTX ISA), of which the 128-byte swizzle is emulated.
struct Descriptor {
  uint32_t address, leading_bytes, stride_bytes;

  Descriptor(uint64_t bits, const Site& site)
      : address(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading_bytes(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride_bytes(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4) {
    if (bits >> 62 != 1) KernelFailure(site, "a descriptor without the 128-byte swizzle");
    if ((bits >> 49 & 7) != 0 || address % 1024 >= 128) {
      KernelFailure(site, "a descriptor that begins within the lines of an atom");
    }
  }
  // Bytes from shared memory's first to element (i, k), where i is the row of A or column of B.
  uint32_t Place(int i, int k, bool mn_major) const {
    const auto line = [](int index) { return static_cast<uint32_t>(index % 8 * 128); };
    const auto times = [](int count, uint32_t bytes) {
      return static_cast<uint32_t>(count) * bytes;
    };
    const uint32_t plain = mn_major ? address + times(i % 64, 2) + times(i / 64, leading_bytes) +
                                          line(k) + times(k / 8, stride_bytes)
                                    : address + times(k, 2) + line(i) + times(i / 8, stride_bytes);
    return plain ^ ((plain >> 7 & 7) << 4);
  }
};

// Ends the process where a thread has written without a fence.
uint16_t ReadShared(uint32_t address, bool check, const Site& site) {
  HopperState& state = ThisHopper();
  const uint32_t offset = address - SharedAddressOf(DynamicSharedMemory(), site);
  if (offset / 16 >= state.writes.size()) {
    KernelFailure(site, "an operand is outside of dynamic shared memory");
  }
  const UnfencedWrite& write = state.writes[offset / 16];
  if (check && write.thread >= 0) {
    KernelFailure(write.site, "a product reads this without FenceProxyAsync");
  }
  uint16_t bits;
  std::memcpy(&bits, DynamicSharedMemory() + offset, 2);
  return bits;
}

std::vector<uint16_t> ReadA(const WgmmaProduct& p, bool check) {
  std::vector<uint16_t> bits(kRows * kDepth);
  if (p.a[0] == nullptr) {
    const Descriptor descriptor(p.a_descriptor, p.site);
    if (descriptor.address % 128 > 96) KernelFailure(p.site, "A leaves its lines");
    for (int row = 0; row < kRows; ++row) {
      for (int k = 0; k < kDepth; ++k) {
        bits[static_cast<size_t>(row * kDepth + k)] =
            ReadShared(descriptor.Place(row, k, false), check, p.site);
      }
    }
    return bits;
  }
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    const int first = thread / 32 * 16 + thread % 32 / 4;
    for (int i = 0; i < 8; ++i) {
      const int row = first + i / 2 % 2 * 8, k = thread % 4 * 2 + i % 2 + i / 4 * 8;
      bits[static_cast<size_t>(row * kDepth + k)] =
          static_cast<uint16_t>(p.a[thread][i / 2] >> (16 * (i % 2)));
    }
  }
  return bits;
}

std::vector<uint16_t> ReadB(const WgmmaProduct& p, bool check) {
  std::vector<uint16_t> bits(static_cast<size_t>(kDepth * p.columns));
  const Descriptor descriptor(p.b_descriptor, p.site);
  if (descriptor.address % 128 > (p.b_is_mn_major ? 0 : 96)) {
    KernelFailure(p.site, "B leaves its lines");
  }
  for (int k = 0; k < kDepth; ++k) {
    for (int col = 0; col < p.columns; ++col) {
      bits[static_cast<size_t>(k * p.columns + col)] =
          ReadShared(descriptor.Place(col, k, p.b_is_mn_major), check, p.site);
    }
  }
  return bits;
}

float Value(uint16_t bits, bool bf16) {
  return bf16 ? ToFloat(BF16{bits}) : static_cast<float>(std::bit_cast<F16>(bits));
}

// values += A · B, summed in f64 and rounded once.
void Multiply(const WgmmaProduct& p, bool bf16, std::vector<float>* values) {
  const auto columns = static_cast<size_t>(p.columns);
  std::vector<double> b(p.b_bits.size()), sums(columns);
  for (size_t i = 0; i < b.size(); ++i) b[i] = Value(p.b_bits[i], bf16);
  for (size_t row = 0; row < kRows; ++row) {
    float* out = values->data() + row * columns;
    std::copy_n(out, columns, sums.data());
    for (size_t k = 0; k < kDepth; ++k) {
      const double a = Value(p.a_bits[row * kDepth + k], bf16);
      const double* line = b.data() + k * columns;
      for (size_t col = 0; col < columns; ++col) sums[col] += a * line[col];
    }
    for (size_t col = 0; col < columns; ++col) out[col] = static_cast<float>(sums[col]);
  }
}

// f(register, value) of each of a thread's sums.
template <typename Values, typename F>
void ForEachSum(WgmmaSums& sums, Values& values, F f) {
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    const int first = thread / 32 * 16 + thread % 32 / 4;
    for (int i = 0; i < sums.columns / 2; ++i) {
      const int row = first + i / 2 % 2 * 8, col = i / 4 * 8 + thread % 4 * 2 + i % 2;
      f(sums.d[thread][i], values[static_cast<size_t>(row * sums.columns + col)]);
    }
  }
}

WgmmaQueue& ThisQueue() {
  return ThisHopper().wgmma[static_cast<size_t>(ThisThreadIndex() / kWarpgroupThreads)];
}

// The sums that begin at the first thread's d: new ones are taken from the registers.
WgmmaSums& SumsOf(WgmmaQueue* queue, Group threads, const Site& site) {
  const auto& first = *static_cast<const WgmmaCall*>(threads[0]);
  for (WgmmaSums& sums : queue->sums) {
    if (sums.d[0] != first.d) continue;
    if (sums.columns != first.columns) KernelFailure(site, "other columns than the last product");
    return sums;
  }
  WgmmaSums& sums = queue->sums.emplace_back();
  sums.columns = first.columns;
  sums.values.resize(static_cast<size_t>(kRows * first.columns));
  for (int i = 0; i < kWarpgroupThreads; ++i) {
    sums.d[i] = static_cast<const WgmmaCall*>(threads[i])->d;
  }
  ForEachSum(sums, sums.values, [&](float& in, float& value) {
    if (first.accumulate) value = in;
    in = std::bit_cast<float>(kOnItsWay);
  });
  return sums;
}

struct IssueIn : WgmmaCall {
  Site site;
};

void IssueAll(Group threads) {
  const auto& first = *static_cast<const IssueIn*>(threads[0]);
  WgmmaQueue& queue = ThisQueue();
  if (!queue.fenced) KernelFailure(first.site, "no WgmmaFence since the last wait");
  WgmmaProduct product{
      first.site,          first.d, {}, first.a_descriptor, first.b_descriptor, first.columns,
      first.b_is_mn_major, {},      {}};
  for (int i = 0; i < kWarpgroupThreads; ++i) {
    const auto& own = *static_cast<const IssueIn*>(threads[i]);
    if (own.a_descriptor != first.a_descriptor || own.b_descriptor != first.b_descriptor ||
        own.accumulate != first.accumulate) {
      KernelFailure(first.site, "a warpgroup's threads have different operands");
    }
    product.a[i] = own.a;
  }
  product.a_bits = ReadA(product, true);
  product.b_bits = ReadB(product, true);
  WgmmaSums& sums = SumsOf(&queue, threads, first.site);
  if (!first.accumulate) std::fill(sums.values.begin(), sums.values.end(), 0.0f);
  Multiply(product, first.bf16, &sums.values);
  ++sums.products;
  queue.open.push_back(std::move(product));
}

void Finish(WgmmaQueue* queue, const WgmmaProduct& product) {
  if (ReadA(product, false) != product.a_bits || ReadB(product, false) != product.b_bits) {
    KernelFailure(product.site, "an operand changed before the product was waited for");
  }
  const auto sums = std::find_if(queue->sums.begin(), queue->sums.end(),
                                 [&](const WgmmaSums& s) { return s.d[0] == product.sums; });
  if (--sums->products > 0) return;
  ForEachSum(*sums, sums->values, [&](float& out, float value) {
    if (std::bit_cast<uint32_t>(out) != kOnItsWay) {
      KernelFailure(product.site, "a sum changed before the product was waited for");
    }
    out = value;
  });
  queue->sums.erase(sums);
}

struct WaitIn {
  int pending_groups;
};

void WaitAll(Group threads) {
  WgmmaQueue& queue = ThisQueue();
  const auto pending = static_cast<size_t>(static_cast<const WaitIn*>(threads[0])->pending_groups);
  while (queue.groups.size() > pending) {
    for (const WgmmaProduct& product : queue.groups.front()) Finish(&queue, product);
    queue.groups.pop_front();
  }
  queue.fenced = false;
}

}  // namespace

void FenceWgmma(const Site& site) {
  WarpgroupOperation(
      nullptr, [](Group) { ThisQueue().fenced = true; }, site);
}

void IssueWgmma(const WgmmaCall& call, const Site& site) {
  IssueIn in{call, site};
  WarpgroupOperation(&in, IssueAll, site);
}

void CommitWgmma(const Site& site) {
  WarpgroupOperation(
      nullptr,
      [](Group) {
        WgmmaQueue& queue = ThisQueue();
        queue.groups.push_back(std::exchange(queue.open, {}));
      },
      site);
}

void WaitForWgmma(int pending_groups, const Site& site) {
  WaitIn in{pending_groups};
  WarpgroupOperation(&in, WaitAll, site);
}

void RequireNoProductsPending(const HopperState& state) {
  for (const WgmmaQueue& queue : state.wgmma) {
    for (const WgmmaProduct& product : queue.open) {
      KernelFailure(product.site, "the block ends without waiting for this product");
    }
    for (const auto& group : queue.groups) {
      if (!group.empty()) {
        KernelFailure(group.front().site, "the block ends without waiting for this product");
      }
    }
  }
}

}  // namespace skein::engine::simt

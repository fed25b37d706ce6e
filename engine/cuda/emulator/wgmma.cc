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

// Shared memory as products read it. `check`: ends the process where a thread has written without
// a fence.
class SharedReader {
 public:
  SharedReader(bool check, const Site& site)
      : check_(check), site_(site), first_(SharedAddressOf(DynamicSharedMemory(), site)) {}
  uint16_t At(uint32_t address) const {
    const uint32_t offset = address - first_;
    if (offset / 16 >= state_.writes.size()) {
      KernelFailure(site_, "an operand is outside of dynamic shared memory");
    }
    const UnfencedWrite& write = state_.writes[offset / 16];
    if (check_ && write.thread >= 0) {
      KernelFailure(write.site, "a product reads this without FenceProxyAsync");
    }
    uint16_t bits;
    std::memcpy(&bits, memory_ + offset, 2);
    return bits;
  }

 private:
  const HopperState& state_ = ThisHopper();
  const unsigned char* const memory_ = DynamicSharedMemory();
  const bool check_;
  const Site& site_;
  const uint32_t first_;
};

std::vector<uint16_t> ReadA(const WgmmaProduct& p, bool check) {
  std::vector<uint16_t> bits(kRows * kDepth);
  if (p.a[0] == nullptr) {
    const Descriptor descriptor(p.a_descriptor, p.site);
    if (descriptor.address % 128 > 96) KernelFailure(p.site, "A leaves its lines");
    const SharedReader shared(check, p.site);
    for (int row = 0; row < kRows; ++row) {
      for (int k = 0; k < kDepth; ++k) {
        bits[static_cast<size_t>(row * kDepth + k)] = shared.At(descriptor.Place(row, k, false));
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
  const SharedReader shared(check, p.site);
  for (int k = 0; k < kDepth; ++k) {
    for (int col = 0; col < p.columns; ++col) {
      bits[static_cast<size_t>(k * p.columns + col)] =
          shared.At(descriptor.Place(col, k, p.b_is_mn_major));
    }
  }
  return bits;
}

float Value(uint16_t bits, bool bf16) {
  return bf16 ? ToFloat(BF16{bits}) : static_cast<float>(std::bit_cast<F16>(bits));
}

// values += A · B, summed in f64 and rounded once.
template <int kColumns>
void Multiply(const WgmmaProduct& p, bool bf16, float* values) {
  double b[kDepth][kColumns];
  for (int k = 0; k < kDepth; ++k) {
    for (int col = 0; col < kColumns; ++col) {
      b[k][col] = Value(p.b_bits[static_cast<size_t>(k * kColumns + col)], bf16);
    }
  }
  for (int row = 0; row < kRows; ++row, values += kColumns) {
    double sums[kColumns];
    for (int col = 0; col < kColumns; ++col) sums[col] = values[col];
    for (int k = 0; k < kDepth; ++k) {
      const double a = Value(p.a_bits[static_cast<size_t>(row * kDepth + k)], bf16);
      for (int col = 0; col < kColumns; ++col) sums[col] += a * b[k][col];
    }
    for (int col = 0; col < kColumns; ++col) values[col] = static_cast<float>(sums[col]);
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
  if (first.columns != 64 && first.columns != 128) KernelFailure(first.site, "64 or 128 columns");
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
  const auto multiply = first.columns == 64 ? Multiply<64> : Multiply<128>;
  multiply(product, first.bf16, sums.values.data());
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

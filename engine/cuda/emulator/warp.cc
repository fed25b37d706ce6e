#include "engine/cuda/emulator/warp.h"

#include <algorithm>

#include "engine/base/dtype.h"
#include "engine/base/f16.h"

namespace skein::engine::simt {
namespace {

constexpr int kLanes = 32;
constexpr uint64_t kUndefined = ~uint64_t{0};  // what a lane outside the mask would have given

struct ShuffleIn {
  Shuffle kind;
  uint64_t value;
  int operand;
  int width;
};

// The lane that `lane` reads from (PTX ISA, shfl.sync).
int SourceOf(int lane, const ShuffleIn& in) {
  const int first = lane & ~(in.width - 1);
  const int last = first + in.width - 1;
  switch (in.kind) {
    case Shuffle::kUp: {
      const int from = lane - in.operand;
      return from >= first ? from : lane;
    }
    case Shuffle::kDown: {
      const int from = lane + in.operand;
      return from <= last ? from : lane;
    }
    case Shuffle::kXor: {
      const int from = lane ^ in.operand;
      return from <= last ? from : lane;
    }
    case Shuffle::kIndex:
      break;
  }
  return first | (in.operand & (in.width - 1));
}

struct ReduceIn {
  Reduction kind;
  bool is_signed;
  uint32_t value;
};

uint32_t Join(const ReduceIn& in, uint32_t a, uint32_t b) {
  const bool less = in.is_signed ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b;
  switch (in.kind) {
    case Reduction::kAdd:
      return a + b;
    case Reduction::kMin:
      return less ? a : b;
    case Reduction::kMax:
      return less ? b : a;
    case Reduction::kAnd:
      return a & b;
    case Reduction::kOr:
      return a | b;
    case Reduction::kXor:
      break;
  }
  return a ^ b;
}

struct MatrixIn {
  const void* row;
  int count;
  bool transpose;
};

uint16_t MatrixElement(const void* const (&in)[32], int matrix, int row, int col) {
  const void* data = static_cast<const MatrixIn*>(in[8 * matrix + row])->row;
  uint16_t element;
  std::memcpy(&element, static_cast<const char*>(data) + col * 2, 2);
  return element;
}

void GiveMatrices(uint32_t, const void* const (&in)[32], void* const (&out)[32]) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& own = *static_cast<const MatrixIn*>(in[lane]);
    for (int i = 0; i < own.count; ++i) {
      const int major = lane / 4, minor = lane % 4 * 2;
      const uint32_t low =
          own.transpose ? MatrixElement(in, i, minor, major) : MatrixElement(in, i, major, minor);
      const uint32_t high = own.transpose ? MatrixElement(in, i, minor + 1, major)
                                          : MatrixElement(in, i, major, minor + 1);
      static_cast<uint32_t*>(out[lane])[i] = low | (high << 16);
    }
  }
}

struct FragmentIn {
  const uint32_t* a;  // [4]
  const uint32_t* b;  // [2]
  bool bf16;
};

float Half16(uint32_t pair, int which, bool bf16) {
  const auto bits = static_cast<uint16_t>(pair >> (16 * which));
  return bf16 ? ToFloat(BF16{bits}) : static_cast<float>(std::bit_cast<F16>(bits));
}

// The three matrices as the fragment layouts of m16n8k16 deal them to lanes.
void MultiplyAll(uint32_t, const void* const (&in)[32], void* const (&out)[32]) {
  double a[16][16], b[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& own = *static_cast<const FragmentIn*>(in[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 8; ++i) {
      a[group + (i / 2 % 2) * 8][pair + i % 2 + (i / 4) * 8] =
          Half16(own.a[i / 2], i % 2, own.bf16);
    }
    for (int i = 0; i < 4; ++i) {
      b[pair + i % 2 + (i / 2) * 8][group] = Half16(own.b[i / 2], i % 2, own.bf16);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    auto* d = static_cast<float*>(out[lane]);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i / 2) * 8, col = lane % 4 * 2 + i % 2;
      double sum = d[i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
      d[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace

uint64_t ShuffleBits(Shuffle kind, uint32_t mask, uint64_t value, int operand, int width,
                     const Site& site) {
  if (width < 1 || width > kLanes || (width & (width - 1)) != 0) {
    KernelFailure(site, "width is not a power of two up to 32");
  }
  const ShuffleIn in{kind, value, operand, width};
  uint64_t out = 0;
  WarpOperation(
      mask, &in, &out,
      [](uint32_t, const void* const(&ins)[32], void* const(&outs)[32]) {
        for (int lane = 0; lane < kLanes; ++lane) {
          if (ins[lane] == nullptr) continue;
          const void* from = ins[SourceOf(lane, *static_cast<const ShuffleIn*>(ins[lane]))];
          *static_cast<uint64_t*>(outs[lane]) =
              from == nullptr ? kUndefined : static_cast<const ShuffleIn*>(from)->value;
        }
      },
      site);
  return out;
}

uint32_t Ballot(uint32_t mask, bool vote, const Site& site) {
  uint32_t out = 0;
  WarpOperation(
      mask, &vote, &out,
      [](uint32_t, const void* const(&ins)[32], void* const(&outs)[32]) {
        uint32_t votes = 0;
        for (int lane = 0; lane < kLanes; ++lane) {
          if (ins[lane] != nullptr && *static_cast<const bool*>(ins[lane])) votes |= 1u << lane;
        }
        for (void* out_of_lane : outs) {
          if (out_of_lane != nullptr) *static_cast<uint32_t*>(out_of_lane) = votes;
        }
      },
      site);
  return out;
}

uint32_t Reduce(Reduction kind, bool is_signed, uint32_t mask, uint32_t value, const Site& site) {
  const ReduceIn in{kind, is_signed, value};
  uint32_t out = 0;
  WarpOperation(
      mask, &in, &out,
      [](uint32_t, const void* const(&ins)[32], void* const(&outs)[32]) {
        const ReduceIn* first = nullptr;
        uint32_t joined = 0;
        for (const void* in_of_lane : ins) {
          if (in_of_lane == nullptr) continue;
          const auto* own = static_cast<const ReduceIn*>(in_of_lane);
          joined = first == nullptr ? own->value : Join(*first, joined, own->value);
          if (first == nullptr) first = own;
        }
        for (void* out_of_lane : outs) {
          if (out_of_lane != nullptr) *static_cast<uint32_t*>(out_of_lane) = joined;
        }
      },
      site);
  return out;
}

void LoadMatrices(uint32_t* r, int count, const void* row, bool transpose, const Site& site) {
  if (ThisLane() < 8 * count) {
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) KernelFailure(site, "the row is not aligned");
    CheckShared(row, 16, site);
  }
  const MatrixIn in{row, count, transpose};
  WarpOperation(0xffffffffu, &in, r, GiveMatrices, site);
}

void MultiplyFragments(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool bf16,
                       const Site& site) {
  const FragmentIn in{a, b, bf16};
  WarpOperation(0xffffffffu, &in, d, MultiplyAll, site);
}

}  // namespace skein::engine::simt

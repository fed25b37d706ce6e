#include "engine/ops/kv_address.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace skein::engine {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr int kLayouts[] = {1, 2, 4, 8};  // ranks; with 8, two hold the same head

KvSpec SmallSpec(DType dtype) {
  return {{.num_layers = 1, .kv_heads = 4, .head_dim = 8, .block_tokens = 4, .dtype = dtype}, 3};
}

// Bytes from the layer's base to the first element of each (block, K or V, head, token). Layers are
// alike: each has a region of its own.
std::vector<int64_t> Offsets(const KvSpec& spec, KvLayout layout) {
  const auto bytes = static_cast<int64_t>(BytesOf(spec.dtype));
  std::vector<int64_t> offsets;
  for (int64_t block = 0; block < spec.num_blocks; ++block) {
    for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
      for (int head = 0; head < KvHeads(layout, spec); ++head) {
        for (int64_t token = 0; token < TokensPerBlock(layout, spec); ++token) {
          offsets.push_back(bytes * KvElementOffset(spec, layout, block, side, head, token));
        }
      }
    }
  }
  return offsets;
}

class Digest {  // FNV-1a of numbers
 public:
  void Add(int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      value_ = (value_ ^ ((static_cast<uint64_t>(number) >> shift) & 0xff)) * 0x100000001b3;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// Instances of different builds write into each other's blocks. They refuse each other only if
// their kKvFormat differs, so a change of the layout must change that number.
TEST(KvAddress, TheLayoutWithinABlockChangesOnlyWithItsVersion) {
  Digest digest;
  for (const DType dtype : kDTypes) {
    const KvSpec spec = SmallSpec(dtype);
    digest.Add(spec.BlockBytes());
    for (const int tp : kLayouts) {
      const KvLayout layout{tp};
      digest.Add(TokensPerBlock(layout, spec));
      digest.Add(KvHeads(layout, spec));
      for (const int64_t offset : Offsets(spec, layout)) digest.Add(offset);
    }
  }
  EXPECT_EQ(digest.value(), 0x1824363cb819e3f3u)
      << "changed? raise kKvFormat (scheduler/kv/handoff_shape.h) and this number";
}

TEST(KvAddress, EveryVectorOfABlockHasAPlaceOfItsOwn) {
  for (const DType dtype : kDTypes) {
    const KvSpec spec = SmallSpec(dtype);
    const int64_t vector_bytes = spec.head_dim * static_cast<int64_t>(BytesOf(dtype));
    for (const int tp : kLayouts) {
      SCOPED_TRACE(std::string(NameOf(dtype)) + ", tp " + std::to_string(tp));
      const std::vector<int64_t> offsets = Offsets(spec, {tp});
      const std::set<int64_t> places(offsets.begin(), offsets.end());
      EXPECT_EQ(places.size(), offsets.size());
      EXPECT_EQ(static_cast<int64_t>(places.size()) * vector_bytes,
                spec.num_blocks * spec.BlockBytes());
      EXPECT_EQ(*places.begin(), 0);
      EXPECT_EQ(*places.rbegin() + vector_bytes, spec.num_blocks * spec.BlockBytes());
    }
  }
}

TEST(KvAddress, ATokenIsFoundThroughItsBlockTable) {
  const KvSpec spec = SmallSpec(DType::kBF16);
  const std::vector<int32_t> table = {2, 0};
  for (const int tp : kLayouts) {
    SequenceSpan sequence;
    sequence.block_table = table;
    sequence.layout = {tp};
    const int64_t tokens = TokensPerBlock(sequence.layout, spec);
    for (int64_t position = 0; position < 2 * tokens; ++position) {
      EXPECT_EQ(
          KvElementOf(sequence, spec, KvSide::kValue, 0, position),
          KvElementOffset(spec, sequence.layout, table[static_cast<size_t>(position / tokens)],
                          KvSide::kValue, 0, position % tokens));
    }
  }
}

}  // namespace
}  // namespace skein::engine

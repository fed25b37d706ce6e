// What CpuOps computes is tested in engine/ops/conformance.
#include "engine/ops/cpu/cpu_ops.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(MakeCpuOps, RefusesNoThreads) {
  EXPECT_EQ(MakeCpuOps({0, CpuIsa::kAuto}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuIsaTest, AnIsaIsFoundByItsName) {
  EXPECT_EQ(IsaNamed("auto"), CpuIsa::kAuto);
  EXPECT_EQ(IsaNamed("avx512bf16"), CpuIsa::kAvx512Bf16);
  EXPECT_EQ(IsaNamed("avx512"), CpuIsa::kAvx512);
  EXPECT_EQ(IsaNamed("avx2"), CpuIsa::kAvx2);
  EXPECT_EQ(IsaNamed("portable"), CpuIsa::kPortable);
  EXPECT_EQ(IsaNamed("sse"), std::nullopt);
}

TEST(CpuOps, ReproducibleCostsLittleWhereThatWasMeasured) {
  EXPECT_TRUE(ReproducibleCostsLittle(CpuIsa::kAvx512));
  EXPECT_TRUE(ReproducibleCostsLittle(CpuIsa::kAvx2));
  EXPECT_FALSE(ReproducibleCostsLittle(CpuIsa::kAvx512Bf16));
  EXPECT_FALSE(ReproducibleCostsLittle(CpuIsa::kPortable));
  EXPECT_EQ(ReproducibleCostsLittle(CpuIsa::kAuto), ReproducibleCostsLittle(BestIsa()));
}

// Broken KV is never taken for "no key": what it touches is NaN, whatever NaN's bits.
TEST(CpuOps, KeysThatAreNanMakeTheirRowsNan) {
  constexpr int kDim = 16;
  const KvSpec spec{
      {.num_layers = 1, .kv_heads = 1, .head_dim = kDim, .block_tokens = 16, .dtype = DType::kF32},
      1};
  for (const CpuIsa isa : {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512Bf16}) {
    if (!IsSupported(isa)) continue;
    const auto ops = MakeCpuOps({1, isa});
    ASSERT_TRUE(ops.ok());
    for (const uint32_t bits : {0xffffffffu, 0x7fc00000u, 0x7f800001u}) {
      std::vector<float> pool(static_cast<size_t>(spec.BlockBytes()) / sizeof(float));
      for (float& value : pool) std::memcpy(&value, &bits, sizeof(bits));
      std::vector<float> q(kDim, 0.5f), out(kDim), lse(1);
      const std::vector<int32_t> table = {0};
      const std::vector<SequenceSpan> spans = {
          {.token_begin = 0, .token_count = 1, .position = 3, .block_table = table}};
      (*ops)->PagedAttention({q.data(), DType::kF32, 1, kDim, kDim}, spans, {pool.data(), &spec},
                             0.25f, {out.data(), DType::kF32, 1, kDim, kDim},
                             {lse.data(), DType::kF32, 1, 1, 1});
      for (const float value : out) EXPECT_TRUE(std::isnan(value)) << NameOf(isa) << ": " << value;
      EXPECT_TRUE(std::isnan(lse[0])) << NameOf(isa) << ": " << lse[0];
    }
  }
}

}  // namespace
}  // namespace skein::engine

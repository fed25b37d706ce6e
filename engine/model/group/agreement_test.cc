#include "engine/model/group/agreement.h"

#include <string_view>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/device/cpu_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using Lists = std::vector<std::vector<int32_t>>;

uint64_t DigestOf(std::string_view model_hash, const Lists& lists) {
  Digest digest(model_hash);
  for (const auto& list : lists) digest.AddIds(list);
  return digest.value();
}

TEST(Digest, TellsWhatDiffersAndWhere) {
  const std::vector<uint64_t> all = {DigestOf("a", {}),
                                     DigestOf("b", {}),
                                     DigestOf("a", {{}}),
                                     DigestOf("a", {{0}}),
                                     DigestOf("a", {{0, 0}}),
                                     DigestOf("a", {{0}, {0}}),
                                     DigestOf("a", {{1, 2, 3}}),
                                     DigestOf("a", {{1, 3, 2}}),
                                     DigestOf("a", {{1, 2}, {3}}),
                                     DigestOf("a", {{1}, {2, 3}}),
                                     DigestOf("a", {{1, 2, -3}}),
                                     DigestOf("b", {{1, 2, 3}})};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
  }
}

// The ranks may be processes of different builds.
TEST(Digest, IsTheSameEverywhere) {
  EXPECT_EQ(DigestOf("model", {{1, 2}, {3}}), 7383689165815700370u);
}

TEST(GatherValues, GivesAllRanksAll) {
  constexpr int kRanks = 3;
  LocalHub hub;
  TestingRanks ranks([&] { return hub.MakeFabric(); }, kRanks);
  const auto ends = TestingRanks::Run(ranks.GroupOfAll(), [](Communicator* comm) {
    const auto device = MakeCpuDevice();
    const auto rank = static_cast<uint64_t>(comm->Rank());
    const uint64_t mine[] = {rank, ~rank};
    std::byte scratch[(kRanks + 1) * sizeof(mine)];
    const auto all = GatherValues(comm, device.get(), mine, scratch, Later());
    if (!all.ok()) return all.status();
    EXPECT_THAT(*all, ::testing::ElementsAre(0, ~0ull, 1, ~1ull, 2, ~2ull));
    return absl::OkStatus();
  });
  for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
}

}  // namespace
}  // namespace skein::engine

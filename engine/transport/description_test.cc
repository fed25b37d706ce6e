#include "engine/transport/description.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace skein::engine {
namespace {

Description Sample() {
  Description d;
  d.kind = TransportKind::kUcx;
  d.incarnation = 0x0123456789abcdefu;
  d.grant = {7};
  d.worker_address = std::string("worker\0address", 14);
  d.regions = {{1, 0x7f0000000000u, 1u << 20, "key-one"}, {9, 0x1000, 4096, ""}};
  return d;
}

TEST(Description, RoundTrips) {
  auto parsed = ParseDescription(SerializeDescription(Sample()));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, Sample());
}

TEST(Description, DescribeUnderChangesTheGrantOnly) {
  auto parsed = ParseDescription(DescribeUnder(SerializeDescription(Sample()), {8}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->grant, GrantId{8});
  parsed->grant = {7};
  EXPECT_EQ(*parsed, Sample());
}

TEST(Description, NoRegionsIsValid) {
  Description d = Sample();
  d.regions.clear();
  EXPECT_TRUE(ParseDescription(SerializeDescription(d)).ok());
}

TEST(Description, RefusesEveryTruncation) {
  const std::string text = SerializeDescription(Sample());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDescription(text.substr(0, size)).status())) << size;
  }
}

TEST(Description, RefusesEveryTruncationWithAValidChecksum) {
  const std::string text = SerializeDescription(Sample());
  for (size_t size = 0; size + 8 < text.size(); ++size) {
    const std::string sealed = SealDescription(text.substr(0, size));
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDescription(sealed).status())) << size;
  }
}

TEST(Description, RefusesEveryFlippedBit) {
  const std::string text = SerializeDescription(Sample());
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(ParseDescription(damaged).ok()) << bit;
  }
}

TEST(Description, RefusesImpossibleRegions) {
  for (const DescribedRegion& region :
       {DescribedRegion{0, 4096, 1, "k"}, DescribedRegion{5, 4096, 0, "k"},
        DescribedRegion{5, 0, 1, "k"}, DescribedRegion{5, UINT64_MAX - 3, 8, "k"},
        DescribedRegion{1, 4096, 1, "the id of the first"}}) {
    Description d = Sample();
    d.regions.push_back(region);
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDescription(SerializeDescription(d)).status()));
  }
}

TEST(Description, SurvivesSealedMutations) {
  std::mt19937_64 random(7);
  const std::string text = SerializeDescription(Sample());
  const std::string body = text.substr(0, text.size() - 8);
  for (int i = 0; i < 20000; ++i) {
    std::string mutated = body;
    for (uint64_t n = random() % 4; n-- > 0;) mutated[random() % mutated.size()] = char(random());
    if (random() % 4 == 0) mutated.resize(random() % (mutated.size() + 16));
    auto parsed = ParseDescription(SealDescription(mutated));
    if (parsed.ok()) {
      EXPECT_EQ(SerializeDescription(*parsed), SealDescription(mutated));
    }
  }
}

}  // namespace
}  // namespace skein::engine

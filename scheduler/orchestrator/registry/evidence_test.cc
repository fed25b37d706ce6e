#include "scheduler/orchestrator/registry/evidence.h"

#include <gtest/gtest.h>

#include <random>

namespace skein::scheduler {
namespace {

constexpr Incarnation kA{11}, kB{12}, kC{13};

class EvidenceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(evidence_.CheckInvariants().ok()) << evidence_.CheckInvariants();
  }
  // By how many routers each of the three is heard.
  std::vector<int64_t> Heard() const {
    return {evidence_.HeardBy(kA), evidence_.HeardBy(kB), evidence_.HeardBy(kC)};
  }

  Evidence evidence_;
};

using Counts = std::vector<int64_t>;

TEST_F(EvidenceTest, WhatARouterSaysInFullReplacesWhatItSaid) {
  evidence_.Replace(7, {kA, kB, kB});
  evidence_.Replace(8, {kB});
  EXPECT_EQ(Heard(), (Counts{1, 2, 0}));
  evidence_.Replace(7, {kC});
  EXPECT_EQ(Heard(), (Counts{0, 1, 1}));
  evidence_.Replace(7, {});
  EXPECT_EQ(Heard(), (Counts{0, 1, 0}));
  EXPECT_EQ(evidence_.all().count(7), 0u) << "it hears nothing";
}

TEST_F(EvidenceTest, AChangeLeavesTheRestAsItWas) {
  evidence_.Change(7, {kA, kB}, {kC});  // it never said that it hears C
  evidence_.Change(8, {kB}, {});
  EXPECT_EQ(Heard(), (Counts{1, 2, 0}));
  evidence_.Change(7, {kC}, {kA});
  evidence_.Change(7, {kC}, {kA});  // duplicate
  EXPECT_EQ(Heard(), (Counts{0, 2, 1}));
  evidence_.Change(7, {kA}, {kA});
  EXPECT_EQ(Heard(), (Counts{0, 2, 1})) << "not heard is its last word";
}

TEST_F(EvidenceTest, ARouterThatIsForgottenHearsNothing) {
  evidence_.Replace(7, {kA, kB});
  evidence_.Replace(8, {kB});
  evidence_.ForgetRouter(7);
  evidence_.ForgetRouter(9);  // unknown
  EXPECT_EQ(Heard(), (Counts{0, 1, 0}));
  EXPECT_EQ(evidence_.all(), (std::map<uint64_t, std::set<Incarnation>>{{8, {kB}}}));
}

TEST_F(EvidenceTest, NoRouterFillsTheMemory) {
  std::vector<Incarnation> many;
  for (uint64_t i = 1; i <= Evidence::kHeardMax + 1; ++i) many.push_back({i});
  evidence_.Replace(7, many);
  EXPECT_EQ(evidence_.all().at(7).size(), Evidence::kHeardMax);
  EXPECT_EQ(evidence_.HeardBy(many.back()), 0) << "it is one too many";
  evidence_.Replace(8, {many.back()});
  EXPECT_EQ(evidence_.HeardBy(many.back()), 1) << "the limit is each router's own";
  evidence_.Change(7, {}, {many.front()});
  evidence_.Change(7, {many.back()}, {});
  EXPECT_EQ(evidence_.HeardBy(many.back()), 2) << "there is room again";
}

TEST_F(EvidenceTest, BothTablesSayTheSameAfterAnything) {
  std::mt19937_64 random(1);
  const auto draw = [&random](uint64_t below) { return random() % below; };
  const auto some = [&draw] {
    std::vector<Incarnation> instances(draw(4));
    for (Incarnation& one : instances) one = {1 + draw(6)};
    return instances;
  };
  std::map<uint64_t, std::set<Incarnation>> said;
  for (int round = 0; round < 5000; ++round) {
    const uint64_t router = 1 + draw(4);
    const std::vector<Incarnation> heard = some(), not_heard = some();
    const uint64_t what = draw(5);
    if (what == 0) {
      said.erase(router);
      evidence_.ForgetRouter(router);
    } else if (what == 1) {
      said[router] = {heard.begin(), heard.end()};
      evidence_.Replace(router, heard);
    } else {
      said[router].insert(heard.begin(), heard.end());
      for (const Incarnation one : not_heard) said[router].erase(one);
      evidence_.Change(router, heard, not_heard);
    }
    std::erase_if(said, [](const auto& one) { return one.second.empty(); });
    ASSERT_EQ(evidence_.all(), said);
    ASSERT_TRUE(evidence_.CheckInvariants().ok()) << evidence_.CheckInvariants();
  }
}

}  // namespace
}  // namespace skein::scheduler

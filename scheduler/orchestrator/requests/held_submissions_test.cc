#include "scheduler/orchestrator/requests/held_submissions.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace skein::scheduler::orchestrator {
namespace {

class HeldSubmissionsTest : public ::testing::Test {
 protected:
  void Hold(uint64_t router, uint64_t serial, bool accepted = false) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {router, serial};
    held_.Hold({.spec = std::move(spec), .accepted = accepted});
    Check();
  }
  void Check() const { EXPECT_TRUE(held_.CheckInvariants().ok()) << held_.CheckInvariants(); }
  std::vector<RequestId> TakeAll() { return Take(held_.size()); }
  std::vector<RequestId> Take(size_t max) {
    std::vector<RequestId> ids;
    for (const SubmitCalled& one : held_.Take(max)) ids.push_back(one.spec->id);
    Check();
    return ids;
  }

  HeldSubmissions held_;
};

TEST_F(HeldSubmissionsTest, TheyAreTakenInTheOrderInWhichTheyCame) {
  Hold(8, 4);
  Hold(7, 9);
  Hold(7, 1);
  EXPECT_EQ(held_.size(), 3u);
  EXPECT_EQ(TakeAll(), (std::vector<RequestId>{{8, 4}, {7, 9}, {7, 1}}));
  EXPECT_TRUE(held_.empty());
  Hold(7, 9);
  EXPECT_EQ(TakeAll(), (std::vector<RequestId>{{7, 9}}));
}

TEST_F(HeldSubmissionsTest, NoMoreAreTakenThanTheCallerWants) {
  for (uint64_t serial = 1; serial <= 3; ++serial) Hold(7, serial);
  EXPECT_EQ(Take(2), (std::vector<RequestId>{{7, 1}, {7, 2}}));
  EXPECT_FALSE(held_.Has({7, 2}));
  EXPECT_TRUE(held_.Has({7, 3}));
  Hold(7, 4);
  EXPECT_EQ(Take(9), (std::vector<RequestId>{{7, 3}, {7, 4}}));
}

TEST_F(HeldSubmissionsTest, ADuplicateKeepsItsPlace) {
  Hold(7, 1);
  Hold(7, 2);
  Hold(7, 1, /*accepted=*/true);
  EXPECT_EQ(TakeAll(), (std::vector<RequestId>{{7, 1}, {7, 2}}));
}

TEST_F(HeldSubmissionsTest, WhatEndsIsHeldNoLonger) {
  for (uint64_t serial = 1; serial <= 3; ++serial) Hold(7, serial);
  Hold(8, 2);
  held_.Forget({7, 2});
  held_.Forget({7, 2});
  Check();
  EXPECT_EQ(held_.size(), 3u);
  held_.ForgetRouter(7);
  held_.ForgetRouter(9);
  EXPECT_EQ(TakeAll(), (std::vector<RequestId>{{8, 2}}));
}

}  // namespace
}  // namespace skein::scheduler::orchestrator

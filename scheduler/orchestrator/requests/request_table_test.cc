#include "scheduler/orchestrator/requests/request_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace skein::scheduler::orchestrator {
namespace {

class RequestTableTest : public ::testing::Test {
 protected:
  Request& Add(uint64_t serial, TimeUs deadline_us, const std::string& model = "m") {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = model;
    return table_.Add(std::move(spec), now_, deadline_us);
  }
  void TearDown() override { EXPECT_TRUE(Check().ok()) << Check(); }
  absl::Status Check() { return table_.CheckInvariants(); }

  RequestTable table_;
  TimeUs now_ = 0;
};

TEST_F(RequestTableTest, FindsByIdEpochAndRouter) {
  Request& one = Add(1, 50);
  one.epoch = {9};
  EXPECT_EQ(table_.Find({7, 1}), &one);
  EXPECT_EQ(table_.Find({7, 1}, {9}), &one);
  EXPECT_EQ(table_.Find({7, 1}, {8}), nullptr);
  EXPECT_EQ(table_.OfRouter(7), (std::vector<RequestId>{{7, 1}}));
  EXPECT_TRUE(table_.OfRouter(8).empty());
  table_.Erase(one);
  EXPECT_EQ(table_.Find({7, 1}), nullptr);
  EXPECT_TRUE(table_.OfRouter(7).empty());
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(table_.submitted(), 1u);
}

TEST_F(RequestTableTest, CountsStatesAndModels) {
  Request& one = Add(1, 50);
  Add(2, 50, "n");
  table_.Enter(one, State::kParked);
  EXPECT_EQ(table_.CountIn(State::kParked), 1);
  EXPECT_EQ(table_.CountIn(State::kAssigning), 1);
  EXPECT_EQ(table_.CountOf("m"), 1);
  EXPECT_EQ(table_.CountOf("m", State::kParked), 1);
  EXPECT_EQ(table_.CountOf("n", State::kParked), 0);
  EXPECT_EQ(table_.CountOf("none"), 0);
  table_.Erase(one);
  EXPECT_EQ(table_.CountIn(State::kParked), 0);
  EXPECT_EQ(table_.CountOf("m"), 0);
  EXPECT_EQ(table_.CountOf("m", State::kParked), 0);
  EXPECT_EQ(table_.CountOf("n"), 1);
}

TEST_F(RequestTableTest, TellsOnlyWhatIsDueInTheOrderOfTime) {
  Add(1, 300);
  Request& two = Add(2, 200);
  Add(3, 100);
  EXPECT_EQ(table_.NextTimer(), 100);
  two.asking_until_us = 50;
  EXPECT_FALSE(Check().ok());  // it was not armed
  table_.Arm(two);
  EXPECT_EQ(table_.NextTimer(), 50);
  now_ = 150;
  EXPECT_EQ(table_.TakeDue(now_), (std::vector<RequestId>{{7, 2}, {7, 3}}));
  EXPECT_TRUE(table_.TakeDue(now_).empty());
  two.asking_until_us = kNever;
  table_.Arm(two);
  table_.Erase(table_.At({7, 3}));
  EXPECT_EQ(table_.NextTimer(), 200);
}

TEST_F(RequestTableTest, GoesThroughRequestsInTheOrderOfSubmission) {
  for (const uint64_t serial : {5, 3, 4}) Add(serial, 300);
  std::vector<uint64_t> serials;
  table_.ForEach([&](const Request& request) { serials.push_back(request.spec->id.serial); });
  EXPECT_EQ(serials, (std::vector<uint64_t>{5, 3, 4}));
  serials.clear();
  table_.ForEachLatest([&](const Request& request) {
    serials.push_back(request.spec->id.serial);
    return serials.size() < 2;
  });
  EXPECT_EQ(serials, (std::vector<uint64_t>{4, 3}));
}

}  // namespace
}  // namespace skein::scheduler::orchestrator

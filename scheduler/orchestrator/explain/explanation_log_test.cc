#include "scheduler/orchestrator/explain/explanation_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace skein::scheduler::orchestrator {
namespace {

class ExplanationLogTest : public ::testing::Test {
 protected:
  Request& Add(uint64_t serial, TimeUs at) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = "m";
    Request& request = requests_.Add(std::move(spec), at, at + 100);
    request.explanation.id = request.spec->id;
    request.explanation.names = {"name-" + std::to_string(serial % 2)};
    log_.Begin(request);
    return request;
  }
  void End(Request& request, TimeUs now, AwaitedReports reports = {}) {
    log_.End(&request, "completed", now, std::move(reports));
    requests_.Erase(request);
  }
  void TearDown() override { EXPECT_TRUE(log_.CheckInvariants().ok()) << log_.CheckInvariants(); }
  static std::vector<uint64_t> Serials(const std::vector<Explanation>& explanations) {
    std::vector<uint64_t> serials;
    for (const Explanation& one : explanations) serials.push_back(one.id.serial);
    return serials;
  }

  RequestTable requests_;
  ExplanationLog log_{2};
};

TEST_F(ExplanationLogTest, FindsByNameThoseAliveFirst) {
  End(Add(1, 0), 5);
  Add(3, 6);
  Add(4, 7);
  Add(5, 8);
  EXPECT_EQ(Serials(log_.Find(requests_, "name-1", 10)), (std::vector<uint64_t>{5, 3, 1}));
  EXPECT_EQ(Serials(log_.Find(requests_, "7/4", 10)), (std::vector<uint64_t>{4}));
  EXPECT_TRUE(log_.Find(requests_, "other", 10).empty());
  End(Add(7, 9), 9);
  End(Add(9, 9), 9);  // the first is forgotten
  EXPECT_EQ(Serials(log_.Find(requests_, "name-1", 10)), (std::vector<uint64_t>{5, 3, 9, 7}));
  EXPECT_TRUE(log_.Find(requests_, "7/1", 10).empty());
}

TEST_F(ExplanationLogTest, ListsTheLatestOrTheSlowest) {
  End(Add(1, 0), 100);  // the slowest
  Add(2, 60);
  Add(3, 70);
  End(Add(4, 80), 81);
  const auto list = [&](ListOrder order, size_t limit) {
    return Serials(log_.List(requests_, order, limit, 100));
  };
  EXPECT_EQ(list(ListOrder::kRecent, 10), (std::vector<uint64_t>{4, 3, 2, 1}));
  EXPECT_EQ(list(ListOrder::kSlowest, 10), (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(list(ListOrder::kSlowest, 2), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(list(ListOrder::kRecent, 2), (std::vector<uint64_t>{4, 3}));
}

TEST_F(ExplanationLogTest, IsBoundedAndAwaitsOnlyWhatItRemembers) {
  const auto awaited = [](Epoch epoch) {
    return AwaitedReports{.epoch = epoch, .prefill = {}, .decode = {3}};
  };
  for (uint64_t serial = 1; serial <= 5; ++serial) {
    Request& request = Add(serial, 0);
    request.explanation.provisional = true;
    End(request, 5, awaited({serial}));
    EXPECT_TRUE(log_.CheckInvariants().ok()) << log_.CheckInvariants();
  }
  EXPECT_EQ(log_.List(requests_, ListOrder::kRecent, 10, 5).size(), 2u);
  EXPECT_EQ(log_.FindEnded({7, 3}), nullptr);
  log_.TakeEnded({{7, 3}, {3}, FinishReason::kStop}, {3});  // it is forgotten
  log_.TakeEnded({{7, 4}, {4}, FinishReason::kStop}, {3});
  EXPECT_FALSE(log_.FindEnded({7, 4})->provisional);
}

// A router that lost the answer submits the same id again.
TEST_F(ExplanationLogTest, AForgottenRequestTakesNothingFromALaterOneOfItsId) {
  End(Add(1, 0), 5);
  Request& again = Add(1, 6);
  again.explanation.provisional = true;
  End(again, 7, {.epoch = {2}, .prefill = {}, .decode = {3}});
  End(Add(2, 8), 9);  // the first is forgotten
  log_.TakeEnded({{7, 1}, {2}, FinishReason::kStop}, {3});
  EXPECT_FALSE(log_.FindEnded({7, 1})->provisional);
}

TEST_F(ExplanationLogTest, CountsWhatFailedAndWhatWasDegraded) {
  Request& one = Add(1, 0);
  log_.Note(Degraded::kParked, &one);
  log_.NoteFailed(&one);
  End(one, 5);
  EXPECT_EQ(log_.degraded()[static_cast<size_t>(Degraded::kParked)], 1u);
  EXPECT_EQ(log_.failed(), 1u);
  Request& preempted = Add(3, 5);
  log_.NotePreemptions(1, &preempted);
  const auto count = [this] { return log_.degraded()[static_cast<size_t>(Degraded::kPreempted)]; };
  EXPECT_EQ(count(), 0u) << "it has no plan";
  preempted.explanation.plans.resize(1);
  log_.NotePreemptions(2, &preempted);
  log_.NotePreemptions(2, &preempted);
  log_.NotePreemptions(3, &preempted);
  EXPECT_EQ(count(), 3u) << "each once";
  preempted.explanation.plans.resize(2);
  log_.NotePreemptions(1, &preempted);
  EXPECT_EQ(count(), 4u);
  EXPECT_EQ(preempted.explanation.degraded[static_cast<size_t>(Degraded::kPreempted)], 4u);
  Request& two = Add(2, 6);
  End(two, 7);
  log_.TakeRouterEnd({.id = {7, 2}, .how = RouterEnd::How::kFailed, .why = "engine"});
  EXPECT_EQ(log_.failed(), 2u);
  EXPECT_EQ(log_.Find(requests_, "7/2", 10)[0].state, "failed: engine");
}

}  // namespace
}  // namespace skein::scheduler::orchestrator

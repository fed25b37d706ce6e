#include "scheduler/router/client_requests.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace skein::scheduler {
namespace {

using State = ClientRequest::State;

class ClientRequestsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<RequestHead> Spec(uint64_t serial, const std::string& tenant = "") {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = "m";
    spec->prompt_tokens = 10;
    spec->tenant = tenant;
    return spec;
  }
  ClientRequest& Add(uint64_t serial) {
    auto spec = Spec(serial);
    ClientRequest request;
    request.spec = std::move(spec);
    request.arrived_us = now_;
    requests_.Add(std::move(request));
    return requests_.at({7, serial});
  }
  void Check() const {
    EXPECT_TRUE(requests_.CheckInvariants().ok()) << requests_.CheckInvariants();
  }

  TimeUs now_ = 100;
  RouterSnapshot snapshot_;
  ClientRequests requests_{
      {.max_streams = 2, .max_queued = 1, .min_retry_after_us = 10, .max_retry_after_us = 1000},
      &snapshot_};
};

TEST_F(ClientRequestsTest, RequestsAreAdmittedInOrderWhileAStreamIsFree) {
  for (uint64_t serial : {1, 2}) {
    Add(serial);
    now_ += 5;
    ClientRequest* request = requests_.Admit(now_);
    ASSERT_NE(request, nullptr);
    EXPECT_EQ(request->spec->id.serial, serial);
    EXPECT_EQ(request->state, State::kSubmitted);
    EXPECT_EQ(request->times.admission_us, 5);
  }
  EXPECT_EQ(requests_.WhyFull({}, now_), "");
  Add(3);
  EXPECT_NE(requests_.WhyFull({}, now_), "");
  EXPECT_EQ(requests_.Admit(now_), nullptr);
  EXPECT_EQ(requests_.OldestQueuedUs(), now_);
  Check();
  requests_.Erase(requests_.at({7, 1}), now_);
  ASSERT_NE(requests_.Admit(now_), nullptr);
  EXPECT_EQ(requests_.OldestQueuedUs(), kNever);
  EXPECT_EQ(requests_.WhyFull({}, now_), "");
  Check();
}

TEST_F(ClientRequestsTest, TheSnapshotCountsByStateAndModel) {
  Add(1);
  EXPECT_EQ(snapshot_.queued, 1);
  ClientRequest& request = *requests_.Admit(now_);
  EXPECT_EQ(snapshot_.models.at("m").submitted, 1);
  const uint64_t version = snapshot_.version;
  requests_.SetState(request, State::kStreaming);
  EXPECT_GT(snapshot_.version, version);
  EXPECT_EQ(snapshot_.streaming, 1);
  EXPECT_EQ(requests_.StateOf({7, 1}), "placed");
  requests_.SetState(request, State::kStreamOver);
  EXPECT_EQ(snapshot_.streaming, 1) << "it is placed still";
  EXPECT_EQ(requests_.StateOf({7, 1}), "placed");
  Check();
  requests_.Erase(request, now_);
  EXPECT_EQ(snapshot_.streaming, 0);
  EXPECT_EQ(snapshot_.models.at("m").streaming, 0);
  EXPECT_EQ(requests_.running(), 0);
  Check();
}

TEST_F(ClientRequestsTest, AQueuedRequestLeavesTheQueueWhenItEnds) {
  for (uint64_t serial : {1, 2}) {
    Add(serial);
    requests_.Admit(now_);
  }
  requests_.Erase(Add(3), now_);
  EXPECT_EQ(snapshot_.queued, 0);
  EXPECT_EQ(requests_.Find({7, 3}), nullptr);
  Check();
}

TEST_F(ClientRequestsTest, TheQueueKeepsItsOrderWhenOneInItEnds) {
  snapshot_ = {};
  ClientRequests requests({.max_streams = 1, .max_queued = 9}, &snapshot_);
  for (uint64_t serial = 1; serial <= 5; ++serial) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    ClientRequest request;
    request.spec = std::move(spec);
    requests.Add(std::move(request));
  }
  ASSERT_NE(requests.Admit(now_), nullptr);
  requests.Erase(requests.at({7, 3}), now_);
  std::vector<uint64_t> admitted;
  for (uint64_t running = 1; running != 0;) {
    EXPECT_TRUE(requests.CheckInvariants().ok()) << requests.CheckInvariants();
    requests.Erase(requests.at({7, running}), now_);
    const ClientRequest* const next = requests.Admit(now_);
    running = next == nullptr ? 0 : next->spec->id.serial;
    if (next != nullptr) admitted.push_back(running);
  }
  EXPECT_EQ(admitted, (std::vector<uint64_t>{2, 4, 5}));
}

TEST_F(ClientRequestsTest, AStreamIsFoundUnderItsEpochWhileItIsOpen) {
  Add(1);
  ClientRequest& request = *requests_.Admit(now_);
  request.epoch = {5};
  EXPECT_EQ(requests_.FindStream({7, 1}, {5}), nullptr);
  requests_.SetState(request, State::kStreaming);
  EXPECT_EQ(requests_.FindStream({7, 1}, {5}), &request);
  EXPECT_EQ(requests_.FindStream({7, 1}, {4}), nullptr);
  requests_.SetState(request, State::kStreamOver);
  EXPECT_EQ(requests_.FindStream({7, 1}, {5}), nullptr);
}

// A tenant sends all that it can. Another one's requests wait for none of its, and are not refused.
TEST_F(ClientRequestsTest, ATenantThatSendsTooMuchIsTheOneThatWaitsAndIsRefused) {
  snapshot_ = {};
  ClientRequests requests({.max_streams = 16, .max_queued = 8}, &snapshot_);
  uint64_t serial = 0;
  const auto send = [&](const std::string& tenant) {
    const std::shared_ptr<RequestHead> spec = Spec(++serial, tenant);
    const std::string why = requests.WhyFull(*spec, now_);
    if (!why.empty()) return why;
    ClientRequest request;
    request.spec = spec;
    request.arrived_us = now_;
    requests.Add(std::move(request));
    while (requests.Admit(now_) != nullptr) {
    }
    EXPECT_TRUE(requests.CheckInvariants().ok()) << requests.CheckInvariants();
    return why;
  };
  const auto end_one_of_the_burst = [&] {
    for (const auto& [id, request] : requests.all()) {
      if (request.asked->tenant != "burst" || request.state == State::kQueued) continue;
      requests.Erase(requests.at(id), now_);
      break;
    }
    while (requests.Admit(now_) != nullptr) {
    }
    EXPECT_TRUE(requests.CheckInvariants().ok()) << requests.CheckInvariants();
  };
  for (int i = 0; i < 24; ++i) EXPECT_EQ(send("burst"), "");  // alone it may have all
  EXPECT_EQ(send("burst"), "The request queue is full (8 waiting). Retry later.");
  EXPECT_EQ(send("quiet"), "");
  EXPECT_EQ(requests.StateOf({7, serial}), "queued");
  EXPECT_EQ(send("burst"),
            "Too many requests of this tenant wait (8, of 9 in the request queue; its share is 4). "
            "Retry later.");
  end_one_of_the_burst();
  EXPECT_EQ(requests.StateOf({7, serial - 1}), "submitted") << "it did not wait for its turn";
  for (int i = 0; i < 4; ++i) end_one_of_the_burst();
  EXPECT_EQ(requests.running(), 14) << "an eighth stays free for the other tenant";
  EXPECT_EQ(send("quiet"), "");
  EXPECT_EQ(requests.StateOf({7, serial}), "submitted");
  // Nobody else asks any more.
  now_ += TenantPlaces::kKnownUs + 1;
  std::vector<RequestId> quiet;
  for (const auto& [id, request] : requests.all()) {
    if (request.asked->tenant == "quiet") quiet.push_back(id);
  }
  for (const RequestId id : quiet) requests.Erase(requests.at(id), now_);
  end_one_of_the_burst();
  for (int i = 0; i < 20; ++i) send("burst");
  EXPECT_EQ(requests.running(), 16);
}

TEST_F(ClientRequestsTest, TheNearestGoalGoesFirstWhileItCanBeReached) {
  snapshot_ = {};
  ClientRequests requests({.max_streams = 1, .max_queued = 9}, &snapshot_);
  const std::vector<TimeUs> goals = {0, 0, 500, 200, 90};
  for (uint64_t serial = 1; serial <= goals.size(); ++serial) {
    const std::shared_ptr<RequestHead> spec = Spec(serial);
    spec->ttft_goal_us = goals[serial - 1];
    ClientRequest request;
    request.spec = spec;
    request.arrived_us = now_;
    requests.Add(std::move(request));
    if (serial == 1) requests.Admit(now_);
  }
  now_ += 100;  // too late for 90
  std::vector<uint64_t> admitted;
  for (uint64_t running = 1; running != 0;) {
    requests.Erase(requests.at({7, running}), now_);
    const ClientRequest* const next = requests.Admit(now_);
    running = next == nullptr ? 0 : next->spec->id.serial;
    if (next != nullptr) admitted.push_back(running);
  }
  EXPECT_EQ(admitted, (std::vector<uint64_t>{4, 3, 2, 5}));
}

TEST_F(ClientRequestsTest, RetryAfterFollowsTheRateOfEnds) {
  EXPECT_EQ(requests_.RetryAfter(now_), 10) << "nothing has ended yet";
  for (uint64_t serial : {1, 2}) {
    Add(serial);
    requests_.Erase(*requests_.Admit(now_), now_);
    now_ += 200;
  }
  EXPECT_EQ(requests_.RetryAfter(now_), 200) << "two ends in 400";
  now_ += 100'000;
  EXPECT_EQ(requests_.RetryAfter(now_), 1000) << "the limit";
}

TEST_F(ClientRequestsTest, TokensBeforeAPlaceViolateTheInvariants) {
  Add(1);
  requests_.Admit(now_)->delivered = 1;
  EXPECT_FALSE(requests_.CheckInvariants().ok());
}

}  // namespace
}  // namespace skein::scheduler

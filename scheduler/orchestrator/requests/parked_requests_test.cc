#include "scheduler/orchestrator/requests/parked_requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace skein::scheduler::orchestrator {
namespace {

class ParkedRequestsTest : public ::testing::Test {
 protected:
  Request& Park(uint64_t serial, const std::string& model = "m", int64_t prompt_tokens = 10,
                bool one_instance = false, int32_t priority = 0, const std::string& tenant = "",
                int64_t weight = 1) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = model;
    spec->prompt_tokens = prompt_tokens;
    spec->want_prompt_logprobs = one_instance;
    spec->priority = priority;
    spec->tenant = tenant;
    spec->tenant_weight = weight;
    Request& request = requests_.Add(std::move(spec), 0, 100);
    requests_.Enter(request, State::kParked);
    parked_.Add(request);
    return request;
  }
  Request& ParkOf(const std::string& tenant, uint64_t serial, int64_t weight = 1,
                  int64_t prompt_tokens = 10) {
    return Park(serial, "m", prompt_tokens, false, 0, tenant, weight);
  }
  // The serials of the next ones, which are planned.
  std::vector<uint64_t> Planned(int count) {
    std::vector<uint64_t> serials;
    ParkedRequests::Round round;
    for (int i = 0; i < count; ++i) {
      const auto next = parked_.Next("m", &round);
      serials.push_back(next->id.serial);
      Request& request = *requests_.Find(next->id);
      EXPECT_TRUE(parked_.Serve(request, PromptTokens(*request.spec)));
      requests_.Enter(request, State::kAssigning);
    }
    return serials;
  }
  // The serials of those that one round tries, in order. `fail`: each is parked still.
  std::vector<uint64_t> Tried(const std::string& model, bool fail = false) {
    std::vector<uint64_t> serials;
    ParkedRequests::Round round;
    while (const auto next = parked_.Next(model, &round)) {
      serials.push_back(next->id.serial);
      if (fail) parked_.NoteFailed(model, *next, &round);
    }
    return serials;
  }
  void TearDown() override {
    const absl::Status status = parked_.CheckInvariants(requests_);
    EXPECT_TRUE(status.ok()) << status;
  }

  RequestTable requests_;
  ParkedRequests parked_;
};

TEST_F(ParkedRequestsTest, EachModelHasALineInTheOrderOfSubmission) {
  Park(9);
  Request& second = Park(4);
  Park(6);
  Park(5, "n");
  EXPECT_EQ(Tried("m"), (std::vector<uint64_t>{9, 4, 6}));
  EXPECT_EQ(Tried("n"), (std::vector<uint64_t>{5}));
  EXPECT_TRUE(Tried("none").empty());
  requests_.Enter(second, State::kAssigning);
  parked_.Remove(second);
  parked_.Remove(second);  // it is not parked
  EXPECT_EQ(Tried("m"), (std::vector<uint64_t>{9, 6}));
}

TEST_F(ParkedRequestsTest, UrgentOnesAreTriedFirst) {
  Park(1, "m", 10, false, -3);
  Park(2);
  Park(3, "m", 10, false, 1);
  Park(4, "m", 1000, false, 9);
  Park(5, "m", 1000);
  EXPECT_EQ(Tried("m"), (std::vector<uint64_t>{3, 4, 2, 5, 1}));
}

TEST_F(ParkedRequestsTest, TheOrderIsThatOfSubmissionOverAllKinds) {
  Park(1, "m", 1000);
  Park(2, "m", 10);
  Park(3, "m", 1000, /*one_instance=*/true);
  Park(4, "m", 1001);
  EXPECT_EQ(Tried("m"), (std::vector<uint64_t>{1, 2, 3, 4}));
}

// A report costs the same, however many wait for an instance that is busy.
TEST_F(ParkedRequestsTest, OfAKindThatFindsNoneFewAreTriedAndOthersAfterThem) {
  for (uint64_t serial = 1; serial <= 100; ++serial) Park(serial, "m", 1000);
  Park(101, "m", 10);
  Park(102, "m", 1000, /*one_instance=*/true);
  EXPECT_EQ(Tried("m", /*fail=*/true), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 101, 102}));
  EXPECT_EQ(Tried("m").size(), 102u) << "the next round";
}

TEST_F(ParkedRequestsTest, BehindSomeThatNeverFitEachIsTriedInTurn) {
  for (uint64_t serial = 1; serial <= 14; ++serial) Park(serial, "m", 1000);
  const auto round = [this] { return Tried("m", /*fail=*/true); };
  EXPECT_EQ(round(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(round(), (std::vector<uint64_t>{1, 2, 3, 4, 9, 10, 11, 12}));
  EXPECT_EQ(round(), (std::vector<uint64_t>{1, 2, 3, 4, 13, 14}));
  EXPECT_EQ(round(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8})) << "from the start again";
}

TEST_F(ParkedRequestsTest, TenantsTakeTurnsByTokensAndWeight) {
  for (uint64_t serial = 1; serial <= 20; ++serial) ParkOf("burst", serial);
  for (uint64_t serial = 21; serial <= 24; ++serial) ParkOf("heavy", serial, /*weight=*/2);
  EXPECT_EQ(Planned(6), (std::vector<uint64_t>{1, 21, 22, 2, 23, 24}));
  ParkOf("quiet", 30, 1, /*prompt_tokens=*/1000);
  EXPECT_EQ(Planned(3), (std::vector<uint64_t>{30, 3, 4})) << "whatever its kind is";
}

// The caller stops a round when it plans late (prefill_flow.h).
TEST_F(ParkedRequestsTest, OneThatARoundDidNotTryIsNotPassedOver) {
  for (uint64_t serial = 1; serial <= 14; ++serial) Park(serial, "m", 1000);
  ParkedRequests::Round round;
  for (int i = 0; i < 4; ++i) parked_.NoteFailed("m", *parked_.Next("m", &round), &round);
  EXPECT_EQ(parked_.Next("m", &round)->id.serial, 5u);
  EXPECT_EQ(Tried("m", /*fail=*/true), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

// The tries that go on in the order of submission reach those of each tenant.
TEST_F(ParkedRequestsTest, BehindSomeOfATenantThatNeverFitTheOthersAreTried) {
  for (uint64_t serial = 1; serial <= 20; ++serial) ParkOf("a", serial);
  ParkOf("b", 21);
  std::set<uint64_t> tried;
  for (int round = 0; round < 6; ++round) {
    const std::vector<uint64_t> serials = Tried("m", /*fail=*/true);
    EXPECT_LE(serials.size(), 8u);
    tried.insert(serials.begin(), serials.end());
  }
  EXPECT_EQ(tried.size(), 21u);
}

TEST_F(ParkedRequestsTest, TellsOnceWhereThereMayBeRoomAndWhatWasAdded) {
  Request& one = Park(1);
  EXPECT_EQ(parked_.TakeRoomy(), (std::set<std::string>{"m"}));
  EXPECT_TRUE(parked_.TakeRoomy().empty());
  parked_.NoteRoom("n");
  EXPECT_EQ(parked_.TakeRoomy(), (std::set<std::string>{"n"}));
  EXPECT_EQ(parked_.TakeAdded(), (std::vector<RequestId>{{7, 1}}));
  EXPECT_TRUE(parked_.TakeAdded().empty());
  EXPECT_TRUE(parked_.HasLine("m"));
  requests_.Enter(one, State::kAssigning);
  parked_.Remove(one);
  EXPECT_FALSE(parked_.HasLine("m"));
}

}  // namespace
}  // namespace skein::scheduler::orchestrator

#include "scheduler/orchestrator/requests/parked_requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace skein::scheduler::orchestrator {
namespace {

class ParkedRequestsTest : public ::testing::Test {
 protected:
  Request& Park(uint64_t serial, const std::string& model = "m") {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = model;
    Request& request = requests_.Add(std::move(spec), 0, 100);
    requests_.Enter(request, State::kParked);
    parked_.Add(request);
    return request;
  }
  // The serials of a model's line, in order.
  std::vector<uint64_t> Line(const std::string& model) {
    std::vector<uint64_t> serials;
    uint64_t last = 0;
    while (const auto next = parked_.NextAfter(model, last)) {
      serials.push_back(next->id.serial);
      last = next->number;
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
  EXPECT_EQ(Line("m"), (std::vector<uint64_t>{9, 4, 6}));
  EXPECT_EQ(Line("n"), (std::vector<uint64_t>{5}));
  EXPECT_TRUE(Line("none").empty());
  requests_.Enter(second, State::kAssigning);
  parked_.Remove(second);
  parked_.Remove(second);  // it is not parked
  EXPECT_EQ(Line("m"), (std::vector<uint64_t>{9, 6}));
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

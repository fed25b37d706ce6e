// The contract of communicator.h and fabric.h: what is refused.
#include <string>
#include <vector>

#include "engine/comm/conformance/checks.h"
#include "engine/comm/conformance/conformance.h"
#include "engine/comm/conformance/values.h"

namespace skein::engine {
namespace {

TEST_P(CommConformance, RefusesWrongMembers) {
  TestingRanks ranks(factory_, 3);
  const std::vector<int> members = {0, 1}, twice = {0, 0}, others = {1, 2};
  const auto refused = [&](std::vector<std::string> addresses, int rank, const char* names) {
    const auto made = ranks.fabric(0)->MakeGroup({9, 9}, addresses, rank);
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
    EXPECT_NE(std::string(made.status().message()).find(names), std::string::npos) << made.status();
  };
  refused(ranks.Addresses(twice), 0, "rank 1");
  refused(ranks.Addresses(others), 0, "rank 0");
  refused(ranks.Addresses(members), 2, "rank 2");
  refused(ranks.Addresses(members), -1, "rank -1");
  refused({ranks.fabric(0)->Address(), "nonsense"}, 0, "rank 1");
  refused({ranks.fabric(0)->Address(), ""}, 0, "rank 1");
  std::string torn = ranks.fabric(1)->Address();
  torn[0] ^= 1;
  refused({ranks.fabric(0)->Address(), torn}, 0, "rank 1");
  refused({}, 0, "rank 0");
}

TEST_P(CommConformance, AnIdServesOneGroupOfTheSameMembers) {
  TestingRanks ranks(factory_, 3);
  const std::vector<int> pair = {0, 1}, other = {0, 2};
  const auto first = ranks.fabric(0)->MakeGroup({5, 5}, ranks.Addresses(pair), 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = ranks.fabric(0)->MakeGroup({5, 5}, ranks.Addresses(pair), 0);
  EXPECT_TRUE(absl::IsAlreadyExists(again.status())) << again.status();
  EXPECT_TRUE(ranks.fabric(0)->MakeGroup({5, 5}, ranks.Addresses(other), 0).ok());
}

TEST_P(CommConformance, SizesThatDifferAreInternalOnBoth) {
  TestingRanks ranks(factory_, 2);
  for (size_t bytes : {3, 100000}) {
    const auto group = ranks.GroupOfAll();
    const auto ends = TestingRanks::Run(group, [&](Communicator* comm) {
      const int other = 1 - comm->Rank();
      const Bytes out(bytes);
      Bytes in(bytes + (comm->Rank() == 0 ? 1 : 0));  // rank 0 expects a byte too many
      std::vector<std::span<const std::byte>> send(2);
      std::vector<std::span<std::byte>> receive(2);
      send[other] = out;
      receive[other] = in;
      return comm->AllToAll(send, receive, Later());
    });
    for (const auto& end : ends) EXPECT_TRUE(absl::IsInternal(end)) << end;
    ExpectOk(TestingRanks::Run(group, CheckBroken));
    ExpectOk(TestingRanks::Run(ranks.GroupOfAll(), CheckEveryKind));
  }
}

TEST_P(CommConformance, CountsThatDifferAreInternalOnBoth) {
  TestingRanks ranks(factory_, 2);
  for (int64_t count : {10, 100000}) {
    const auto ends = TestingRanks::Run(ranks.GroupOfAll(), [&](Communicator* comm) {
      std::vector<float> data(count + comm->Rank());
      return comm->AllReduce(data.data(), count + comm->Rank(), DType::kF32, Later());
    });
    for (const auto& end : ends) EXPECT_TRUE(absl::IsInternal(end)) << end;
  }
  const auto ends = TestingRanks::Run(ranks.GroupOfAll(), [&](Communicator* comm) {
    std::vector<float> data(10), out(20);
    if (comm->Rank() == 0) return comm->AllReduce(data.data(), 10, DType::kF32, Later());
    return comm->AllGather(std::as_bytes(std::span(data)), std::as_writable_bytes(std::span(out)),
                           Later());
  });
  for (const auto& end : ends) EXPECT_TRUE(absl::IsInternal(end)) << end;
}

}  // namespace
}  // namespace skein::engine

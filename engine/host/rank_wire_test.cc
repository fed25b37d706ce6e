#include "engine/host/rank_wire.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<RankWire> Make() {
  auto wire = RankWire::Make();
  SKEIN_CHECK_MSG(wire.ok(), wire.status().ToString().c_str());
  return *std::move(wire);
}

Clock::time_point Later() { return Clock::now() + std::chrono::minutes(5); }

TEST(RankWire, MessagesArriveInOrderFromEachRankWhateverTheirNumber) {
  std::vector<std::unique_ptr<RankWire>> wires;
  std::vector<std::string> names;
  for (int rank = 0; rank < 3; ++rank) {
    wires.push_back(Make());
    names.push_back(wires.back()->name());
  }
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(wires[static_cast<size_t>(rank)]->Join(9, names, rank).ok());
  }
  constexpr int kMessages = 20'000;  // more than a ring holds
  std::vector<std::thread> senders;
  for (const int rank : {1, 2}) {
    senders.emplace_back([&wires, rank] {
      RankWire& wire = *wires[static_cast<size_t>(rank)];
      for (int i = 0; i < kMessages; ++i) wire.Send(0, std::string(100, 'x') + std::to_string(i));
      // What found no room goes while it waits for the lead's word.
      EXPECT_EQ(wire.Wait(Later()).at(0).message, "enough");
    });
  }
  std::vector<int> next(3, 0);
  while (next[1] < kMessages || next[2] < kMessages) {
    for (const RankWire::Arrival& arrival : wires[0]->Wait(Later())) {
      ASSERT_FALSE(arrival.died);
      const int number = next[static_cast<size_t>(arrival.rank)]++;
      ASSERT_EQ(arrival.message, std::string(100, 'x') + std::to_string(number));
    }
  }
  wires[0]->Send(1, "enough");
  wires[0]->Send(2, "enough");
  for (std::thread& sender : senders) sender.join();
}

TEST(RankWire, AWaitEndsByWakeOrItsTime) {
  const auto wire = Make();
  EXPECT_TRUE(wire->Wait(Clock::now()).empty());
  std::thread waker([&] { wire->Wake(); });
  EXPECT_TRUE(wire->Wait(Later()).empty());
  waker.join();
}

TEST(RankWire, AnotherGroupsMessagesAreDropped) {
  const auto one = Make(), other = Make();
  const std::vector<std::string> names = {one->name(), other->name()};
  ASSERT_TRUE(one->Join(1, names, 0).ok());
  ASSERT_TRUE(other->Join(2, names, 1).ok());
  other->Send(0, "of group 2");
  ASSERT_TRUE(other->Join(1, names, 1).ok());
  other->Send(0, "of group 1");
  EXPECT_EQ(one->Wait(Later()).at(0).message, "of group 1");
}

TEST(RankWire, NamesThatAreNoRanksAreRefused) {
  const auto one = Make();
  EXPECT_TRUE(absl::IsInvalidArgument(one->Join(1, std::vector<std::string>{"x"}, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(one->Join(1, std::vector<std::string>{one->name(), "x"}, 0)));
}

// A rank sends its name, then to rank 0 "first", then "last", and is killed at once.
TEST(RankWire, OfARankThatDiedTheLastWordsComeFirst) {
  const auto lead = Make();
  int to_child[2], from_child[2];
  ASSERT_EQ(pipe(to_child) + pipe(from_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto wire = Make();
    const std::string name = wire->name() + '\0';
    SKEIN_CHECK(write(from_child[1], name.data(), name.size()) ==
                static_cast<ssize_t>(name.size()));
    char go = 0;
    SKEIN_CHECK(read(to_child[0], &go, 1) == 1);
    const std::vector<std::string> names = {lead->name(), wire->name()};
    SKEIN_CHECK(wire->Join(5, names, 1).ok());
    wire->Send(0, "first");
    SKEIN_CHECK(read(to_child[0], &go, 1) == 1);
    wire->Send(0, "last");
    kill(getpid(), SIGKILL);
  }
  std::string name;
  for (char c = 0; read(from_child[0], &c, 1) == 1 && c != 0;) name += c;
  const std::vector<std::string> names = {lead->name(), name};
  ASSERT_TRUE(lead->Join(5, names, 0).ok());
  ASSERT_EQ(write(to_child[1], "g", 1), 1);
  EXPECT_EQ(lead->Wait(Later()).at(0).message, "first");
  ASSERT_EQ(write(to_child[1], "g", 1), 1);
  std::vector<RankWire::Arrival> arrivals;
  while (arrivals.size() < 2) {
    for (auto& arrival : lead->Wait(Later())) arrivals.push_back(std::move(arrival));
  }
  EXPECT_EQ(arrivals[0].message, "last");
  EXPECT_TRUE(arrivals[1].died);
  lead->Send(1, "to nobody");
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(absl::IsUnavailable(lead->Join(6, names, 0)));
  for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
}

}  // namespace
}  // namespace skein::engine

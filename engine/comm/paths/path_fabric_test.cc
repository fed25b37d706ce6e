// PathFabric on far devices: which way a group takes, and what happens when it is refused.
#include "engine/comm/paths/path_fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/conformance/checks.h"
#include "engine/comm/conformance/values.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/comm/testing/device_buffers.h"
#include "engine/comm/testing/far_lanes.h"
#include "engine/comm/testing/far_paths.h"
#include "engine/comm/testing/ranks.h"

namespace skein::engine {
namespace {

CommMember On(const std::string& node, const std::string& gpu) {
  CommMember member{.gpu = node + gpu, .realm = node, .nccl_version = 22809};
  for (const char* other : {"0", "1", "2", "3"}) member.reaches.push_back(node + other);
  return member;
}

struct World {
  // Rank r is members[r]; `lame` has `fault`.
  World(std::vector<CommMember> members, int lame, FarFault fault, PathFabricOptions options = {})
      : ranks(
            [this, members = std::move(members), lame, fault,
             options]() -> std::unique_ptr<Fabric> {
              const size_t rank = fabrics.size();
              FarPaths paths{.self = members[rank], .options = options};
              if (static_cast<int>(rank) == lame) paths.fault = fault;
              paths.options.warn = [this, rank](const std::string& what) {
                const std::lock_guard lock(mutex);
                warnings[rank].push_back(what);
              };
              paths.lanes = lanes;
              FarPathFabric made = MakeFarPaths(paths);
              fabrics.push_back(made.fabric.get());
              devices.push_back(made.device);
              return MakeBufferedFabric(std::move(made.fabric), made.device);
            },
            static_cast<int>(members.size())) {}

  // Until a rank warns of `what`.
  void AwaitWarning(size_t rank, const std::string& what) {
    const auto warned = [&] {
      const std::lock_guard lock(mutex);
      const std::vector<std::string>& all = warnings[rank];
      return std::any_of(all.begin(), all.end(), [&](const std::string& one) {
        return one.find(what) != std::string::npos;
      });
    };
    while (!warned()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  // The only way that bytes went, at all ranks; "" if there are several.
  std::string Way() const {
    std::string way;
    for (const PathFabric* fabric : fabrics) {
      for (const CommTotals& totals : fabric->Totals()) {
        const std::string name(NameOf(totals.path));
        if (!way.empty() && way != name) return "";
        way = name;
        EXPECT_GT(totals.bytes, 0u);
        EXPECT_GT(totals.busy_seconds, 0.0);
        EXPECT_GT(totals.best_gb_per_s, 0.0);
        EXPECT_EQ(totals.ranks, ranks.Ranks());
      }
    }
    return way;
  }

  std::mutex mutex;
  std::map<size_t, std::vector<std::string>> warnings;
  const std::shared_ptr<FarLaneHub> lanes = std::make_shared<FarLaneHub>();
  std::vector<PathFabric*> fabrics;
  std::vector<std::shared_ptr<FarDevice>> devices;
  TestingRanks ranks;
};

// Only a hang is waited for.
PathFabricOptions ShortIfHangs(FarFault fault) {
  PathFabricOptions options;
  if (fault == FarFault::kHangs) options.trial_max = std::chrono::seconds(2);
  return options;
}

TEST(PathFabric, OneNodeTakesIpc) {
  World world({On("a", "0"), On("a", "1"), On("a", "1")}, -1, FarFault::kNone);
  for (int round = 0; round < 2; ++round) {
    ExpectOk(TestingRanks::Run(world.ranks.GroupOfAll(), CheckEverything));
  }
  EXPECT_EQ(world.Way(), "ipc");
  EXPECT_TRUE(world.warnings.empty());
}

TEST(PathFabric, TwoNodesTakeNccl) {
  World world({On("a", "0"), On("a", "1"), On("b", "1")}, -1, FarFault::kNone);
  ExpectOk(TestingRanks::Run(world.ranks.GroupOfAll(), CheckEverything));
  EXPECT_EQ(world.Way(), "nccl");
  EXPECT_EQ(world.fabrics[1]->Totals()[0].why_not,
            "ipc: rank 2 differs from rank 0 in node, container or user");
}

TEST(PathFabric, WhatNoneOfTheFastOnesServesGoesThroughTheHost) {
  World world({On("a", "0"), On("b", "1"), On("b", "1")}, -1, FarFault::kNone);
  ExpectOk(TestingRanks::Run(world.ranks.GroupOfAll(), CheckEverything));
  EXPECT_EQ(world.Way(), "host");
  EXPECT_TRUE(world.warnings.empty());
}

// Whatever is wrong at one rank alone, all ranks take the host's way, and say why.
class Refusals : public testing::TestWithParam<std::pair<FarFault, const char*>> {};

TEST_P(Refusals, OnIpc) {
  const auto [fault, why] = GetParam();
  for (const int lame : {0, 2}) {
    SCOPED_TRACE(lame);
    World world({On("a", "0"), On("a", "1"), On("a", "2")}, lame, fault, ShortIfHangs(fault));
    for (const auto check : {CheckEverything, CheckAllReduce}) {
      ExpectOk(TestingRanks::Run(world.ranks.GroupOfAll(), check));
    }
    EXPECT_EQ(world.Way(), "host");
    const std::string rank = "rank " + std::to_string(lame);
    for (size_t r = 0; r < 3; ++r) {
      ASSERT_GE(world.warnings[r].size(), 1u);
      EXPECT_LE(world.warnings[r].size(), 2u);  // who first gives up may change, of two deadlines
      const std::string& said = world.warnings[r][0];
      EXPECT_EQ(said.find("a group of 3 ranks goes through the host: ipc: "), 0u) << said;
      EXPECT_NE(said.find(why), std::string::npos) << said;
      if (fault != FarFault::kHangs) {
        EXPECT_NE(said.find(rank), std::string::npos) << said;
      }
      EXPECT_EQ(world.fabrics[r]->Totals()[0].why_not.find("ipc: "), 0u);
    }
  }
}

TEST_P(Refusals, OnNccl) {
  const auto [fault, why] = GetParam();
  if (fault == FarFault::kMayNotOpen) GTEST_SKIP() << "NCCL opens nothing";
  World world({On("a", "0"), On("b", "1"), On("c", "2")}, 1, fault, ShortIfHangs(fault));
  ExpectOk(TestingRanks::Run(world.ranks.GroupOfAll(), CheckEverything));
  EXPECT_EQ(world.Way(), "host");
  EXPECT_EQ(world.warnings.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(All, Refusals,
                         testing::Values(std::pair(FarFault::kMayNotOpen,
                                                   "the container forbids it"),
                                         std::pair(FarFault::kCannotBegin, "no stream left"),
                                         std::pair(FarFault::kHangs, ""),
                                         std::pair(FarFault::kWrongBytes,
                                                   "received bytes that differ from those sent")));

// Why a group's bytes take the host's way: by rank, once a call of it was OK.
std::vector<std::optional<std::string>> WhyThroughHost(World* world) {
  std::vector<int> members;
  for (int r = 0; r < world->ranks.Ranks(); ++r) members.push_back(r);
  const std::vector<std::string> addresses = world->ranks.Addresses(members);
  std::vector<std::unique_ptr<Communicator>> group;
  for (const int r : members) {
    auto made = world->fabrics[static_cast<size_t>(r)]->MakeGroup({77, 1}, addresses, r);
    EXPECT_TRUE(made.ok()) << made.status();
    group.push_back(*std::move(made));
  }
  ExpectOk(TestingRanks::Run(
      group, [](Communicator* one) { return one->AllReduce(nullptr, 0, DType::kF32, Later()); }));
  std::vector<std::optional<std::string>> why;
  for (const int r : members) {
    why.push_back(world->fabrics[static_cast<size_t>(r)]->WhyThroughHost(*group[r]));
  }
  return why;
}

TEST(PathFabric, AGroupTellsWhyItGoesThroughTheHost) {
  World refused({On("a", "0"), On("a", "1")}, 1, FarFault::kMayNotOpen);
  for (const auto& why : WhyThroughHost(&refused)) {
    ASSERT_TRUE(why.has_value());
    EXPECT_EQ(why->find("ipc: "), 0u) << *why;
    EXPECT_NE(why->find("the container forbids it"), std::string::npos) << *why;
  }
  World mixed({On("a", "0"), On("b", "1"), On("b", "1")}, -1, FarFault::kNone);
  for (const auto& why : WhyThroughHost(&mixed)) {
    ASSERT_TRUE(why.has_value());
    EXPECT_NE(why->find("; nccl: "), std::string::npos) << *why;
  }
  std::vector<CommMember> wanting = {On("a", "0"), On("a", "1")};
  wanting[0].wants = CommPath::kHost;
  World wanted(wanting, -1, FarFault::kNone);
  EXPECT_EQ(WhyThroughHost(&wanted)[1], "host: it is set as the path");
  World fast({On("a", "0"), On("a", "1")}, -1, FarFault::kNone);
  EXPECT_EQ(WhyThroughHost(&fast)[0], std::nullopt);
}

// Why the bytes of a ring of `members` take the host's way, at each of them.
std::vector<std::optional<std::string>> WhyRingThroughHost(World* world, std::vector<int> members,
                                                           uint64_t name) {
  const std::vector<std::string> addresses = world->ranks.Addresses(members);
  std::vector<std::unique_ptr<Communicator>> ring;
  for (size_t r = 0; r < members.size(); ++r) {
    auto opened = world->fabrics[static_cast<size_t>(members[r])]->OpenRing({name, 1}, addresses,
                                                                            static_cast<int>(r));
    EXPECT_TRUE(opened.ok()) << opened.status();
    ring.push_back(*std::move(opened));
  }
  ExpectOk(TestingRanks::Run(
      ring, [](Communicator* one) { return one->AllReduce(nullptr, 0, DType::kF32, Later()); }));
  std::vector<std::optional<std::string>> why;
  for (size_t r = 0; r < members.size(); ++r) {
    why.push_back(world->fabrics[static_cast<size_t>(members[r])]->WhyThroughHost(*ring[r]));
  }
  return why;
}

void ConnectAll(World* world) {
  for (PathFabric* one : world->fabrics) {
    for (PathFabric* other : world->fabrics) EXPECT_TRUE(one->Connect(other->Address()).ok());
  }
}

// A pair is tried once, when it is linked; rings make nothing.
TEST(PathFabric, ARingUsesThePathThatWorksForEachOfItsPairs) {
  World world({On("a", "0"), On("a", "1"), On("a", "2")}, 1, FarFault::kMayNotOpen);
  ConnectAll(&world);
  for (uint64_t name = 1; name <= 6; name += 2) {
    for (const auto& why : WhyRingThroughHost(&world, {0, 2}, name)) {
      EXPECT_EQ(why, std::nullopt);
    }
    for (const auto& why : WhyRingThroughHost(&world, {2, 0, 1}, name + 1)) {
      ASSERT_TRUE(why.has_value());
      EXPECT_NE(why->find("the container forbids it"), std::string::npos) << *why;
    }
  }
  for (const PathFabric* fabric : world.fabrics) {
    EXPECT_EQ(fabric->Made().links, 2u);
    EXPECT_EQ(fabric->Made().groups, 0u);
  }
}

TEST(PathFabric, ARingOfInstancesThatWereNotLinkedLinksThem) {
  World world({On("a", "0"), On("a", "1")}, -1, FarFault::kNone);
  WhyRingThroughHost(&world, {0, 1}, 1);
  EXPECT_EQ(world.fabrics[0]->Made().links, 1u);
}

// Every member's rank reaches all in a ring of `members`, in the devices' memory. The ways that the
// bytes went at its members: "nccl", or why they went through the host, "nccl: …".
std::set<std::string> WaysOfRing(World* world, std::vector<int> members, uint64_t name) {
  const std::vector<std::string> addresses = world->ranks.Addresses(members);
  std::vector<std::unique_ptr<Communicator>> ring;
  for (size_t r = 0; r < members.size(); ++r) {
    ring.push_back(world->fabrics[static_cast<size_t>(members[r])]
                       ->OpenRing({name, 2}, addresses, static_cast<int>(r))
                       .value());
  }
  ExpectOk(TestingRanks::Run(ring, [&](Communicator* one) {
    FarDevice* const device = world->devices[static_cast<size_t>(members[one->Rank()])].get();
    const auto rank = static_cast<size_t>(one->Rank());
    auto* const far = static_cast<std::byte*>(device->Alloc(members.size()).value());
    EXPECT_TRUE(device->Synchronize().ok());
    *device->NearOf(far + rank) = static_cast<std::byte>(rank + 1);
    const absl::Status status = one->AllGather({far + rank, 1}, {far, members.size()}, Later());
    EXPECT_TRUE(device->Synchronize().ok());
    for (size_t r = 0; r < members.size() && status.ok(); ++r) {
      EXPECT_EQ(*device->NearOf(far + r), static_cast<std::byte>(r + 1));
    }
    device->Free(far, members.size());
    return status;
  }));
  std::set<std::string> ways;
  for (size_t r = 0; r < members.size(); ++r) {
    const auto* const fabric = world->fabrics[static_cast<size_t>(members[r])];
    ways.insert(fabric->WhyThroughHost(*ring[r]).value_or("nccl"));
  }
  return ways;
}

// "" if members differ.
std::string WayOfRing(World* world, std::vector<int> members, uint64_t name) {
  const std::set<std::string> ways = WaysOfRing(world, std::move(members), name);
  return ways.size() == 1 ? *ways.begin() : "";
}

// Two lanes for each pair of the pool, also where both are on one node: rings mix the nodes.
TEST(PathFabric, RingsOverNcclUseTheLanesOfTheirPairs) {
  World world({On("a", "0"), On("a", "1"), On("b", "0"), On("b", "1")}, -1, FarFault::kNone);
  ConnectAll(&world);
  EXPECT_EQ(WayOfRing(&world, {0, 1, 2, 3}, 1), "nccl");
  for (uint64_t name = 2; name < 40; ++name) {
    const int first = static_cast<int>(name % 4);
    std::vector<int> members = {first, (first + 2) % 4};
    if (name % 3 != 0) members.insert(members.begin() + 1, (first + 1) % 4);
    EXPECT_EQ(WayOfRing(&world, members, name), "nccl");
  }
  for (const PathFabric* fabric : world.fabrics) EXPECT_EQ(fabric->Made().groups, 6u);
  EXPECT_EQ(world.lanes->Mistake(), "");
  EXPECT_TRUE(world.warnings.empty());
}

// Who joins first, and how often instances are named again, changes nothing.
TEST(PathFabric, PairsOfOneNodeGetLanesOnceThePoolSpansNodes) {
  World world({On("a", "0"), On("a", "1"), On("b", "0"), On("a", "2")}, -1, FarFault::kNone);
  const auto join = [&world](size_t newcomer) {
    for (size_t other = 0; other < newcomer; ++other) {
      EXPECT_TRUE(world.fabrics[other]->Connect(world.fabrics[newcomer]->Address()).ok());
      EXPECT_TRUE(world.fabrics[newcomer]->Connect(world.fabrics[other]->Address()).ok());
    }
  };
  join(1);
  EXPECT_EQ(world.fabrics[0]->Made().groups, 0u) << "one node";
  join(2);
  EXPECT_EQ(WayOfRing(&world, {0, 1, 2}, 2), "nccl");
  join(3);
  EXPECT_EQ(WayOfRing(&world, {3, 1, 2, 0}, 3), "nccl");
  for (int again = 0; again < 3; ++again) ConnectAll(&world);
  EXPECT_EQ(WayOfRing(&world, {0, 1, 2, 3}, 4), "nccl");
  for (const PathFabric* fabric : world.fabrics) EXPECT_EQ(fabric->Made().groups, 6u);
}

TEST(PathFabric, PairsWithProcessesThatDiedAreForgotten) {
  const auto make = [](const char* gpu) {
    return MakeFarPaths({.self = On("a", gpu), .tls = "self,tcp"});
  };
  const FarPathFabric stays = make("0");
  for (int round = 0; round < 4; ++round) {
    const FarPathFabric goes = make("1");
    EXPECT_TRUE(stays.fabric->Connect(goes.fabric->Address()).ok());
    EXPECT_TRUE(goes.fabric->Connect(stays.fabric->Address()).ok());
    EXPECT_EQ(stays.fabric->TriedPairs(), 1u);
  }
  EXPECT_EQ(stays.fabric->Made().links, 4u);
}

TEST_P(Refusals, OnLanes) {
  const auto [fault, why] = GetParam();
  if (fault == FarFault::kMayNotOpen) GTEST_SKIP() << "NCCL opens nothing";
  World world({On("a", "0"), On("b", "1"), On("c", "2")}, 1, fault, ShortIfHangs(fault));
  ConnectAll(&world);
  for (uint64_t name = 1; name <= 6; name += 2) {
    EXPECT_EQ(WayOfRing(&world, {2, 0}, name), "nccl");
    EXPECT_FALSE(WaysOfRing(&world, {0, 1, 2}, name + 1).contains("nccl")) << "at any member";
    for (const auto& one : WhyRingThroughHost(&world, {1, 2}, name)) {
      ASSERT_TRUE(one.has_value());
      EXPECT_NE(one->find("nccl: "), std::string::npos) << *one;
      EXPECT_NE(one->find(why), std::string::npos) << *one;
    }
  }
  EXPECT_EQ(world.lanes->Mistake(), "");
}

// Of two pairs that hang in their trials, one finds no memory for its own.
TEST(PathFabric, AsManyPairsAreTriedAtOnceAsTheOptionSays) {
  PathFabricOptions options;
  options.pair_trials_max = 1;
  World world({On("a", "0"), On("b", "1"), On("c", "2")}, 0, FarFault::kHangs, options);
  for (const size_t other : {1, 2}) {
    EXPECT_TRUE(world.fabrics[0]->Connect(world.fabrics[other]->Address()).ok());
    EXPECT_TRUE(world.fabrics[other]->Connect(world.fabrics[0]->Address()).ok());
  }
  world.AwaitWarning(0, "more than 1 paths are being tried at once");
}

// No deadline but the call's ends here: those of the trials are an hour away.
TEST(PathFabric, ARingEndsWhileATrialOfItsPairGoesOn) {
  PathFabricOptions options;
  options.trial_max = options.lanes_max = std::chrono::hours(1);
  World world({On("a", "0"), On("b", "1")}, 1, FarFault::kHangs, options);
  ConnectAll(&world);
  const std::vector<std::string> addresses = world.ranks.Addresses(std::vector<int>{0, 1});
  std::vector<std::unique_ptr<Communicator>> ring;
  for (int r = 0; r < 2; ++r) {
    ring.push_back(world.fabrics[static_cast<size_t>(r)]->OpenRing({1, 1}, addresses, r).value());
  }
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  EXPECT_TRUE(absl::IsDeadlineExceeded(CallOnce(0, ring[0].get(), soon)));
  ring.clear();
  EXPECT_TRUE(world.warnings.empty()) << "a ring that was given up says nothing about the path";
}

TEST(PathFabric, RingsOverAWantedNcclUseLanes) {
  std::vector<CommMember> members = {On("a", "0"), On("a", "1")};
  members[1].wants = CommPath::kNccl;
  World world(members, -1, FarFault::kNone);
  ConnectAll(&world);
  for (uint64_t name = 1; name <= 5; ++name) EXPECT_EQ(WayOfRing(&world, {1, 0}, name), "nccl");
  EXPECT_GE(world.fabrics[0]->Made().groups, 2u);
  EXPECT_LE(world.fabrics[0]->Made().groups, 3u) << "one more if the first ring met the trial";
  EXPECT_EQ(world.lanes->Mistake(), "");
}

// Nothing stands in for it: the error names the way and the rank, everywhere.
TEST(PathFabric, AWantedWayThatIsRefusedBreaksTheGroup) {
  std::vector<CommMember> members = {On("a", "0"), On("a", "1"), On("a", "2")};
  members[2].wants = CommPath::kIpc;
  World world(members, 1, FarFault::kMayNotOpen);
  for (int round = 0; round < 2; ++round) {
    for (const auto& end : TestingRanks::Run(world.ranks.GroupOfAll(), CheckAllReduce)) {
      EXPECT_TRUE(absl::IsUnavailable(end)) << end;
      const std::string said(end.message());
      EXPECT_NE(said.find("ipc: rank 1 cannot open rank "), std::string::npos) << said;
      EXPECT_NE(said.find("the container forbids it"), std::string::npos) << said;
    }
  }
  EXPECT_TRUE(world.warnings.empty());
}

TEST(PathFabric, AWantedWayIsTaken) {
  std::vector<CommMember> members = {On("a", "0"), On("a", "1")};
  members[0].wants = CommPath::kNccl;
  World world(members, -1, FarFault::kNone);
  ExpectOk(TestingRanks::Run(world.ranks.GroupOfAll(), CheckEverything));
  EXPECT_EQ(world.Way(), "nccl");
}

// No call waits longer than its deadline for a trial that takes more.
TEST(PathFabric, ACallsDeadlineEndsTheTrial) {
  World world({On("a", "0"), On("a", "1")}, -1, FarFault::kNone);
  const std::vector<int> members = {0, 1};
  auto alone = world.ranks.fabric(0)->MakeGroup({1, 1}, world.ranks.Addresses(members), 0);
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  EXPECT_TRUE(absl::IsDeadlineExceeded(CallOnce(0, alone->get(), deadline)));
  EXPECT_TRUE(CheckBroken(alone->get()).ok());
  // The other one hears of it, whenever it comes.
  auto late = world.ranks.fabric(1)->MakeGroup({1, 1}, world.ranks.Addresses(members), 1);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_TRUE(absl::IsUnavailable(CallOnce(0, late->get(), Later())));
  EXPECT_TRUE(world.warnings.empty());
}

TEST(PathFabric, GpusAndHostsDoNotMix) {
  World world({On("a", "0"), On("a", "1")}, -1, FarFault::kNone);
  const auto host = MakeHostFabric({.hosts = {.tls = "self,shm"}});
  ASSERT_TRUE(host.ok()) << host.status();
  const std::vector<std::string> addresses = {world.ranks.fabric(0)->Address(),
                                              world.ranks.fabric(1)->Address(), (*host)->Address()};
  for (Fabric* fabric : {world.ranks.fabric(0), static_cast<Fabric*>(host->get())}) {
    const int rank = fabric == host->get() ? 2 : 0;
    const auto made = fabric->MakeGroup({1, 1}, addresses, rank);
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
    EXPECT_EQ(std::string(made.status().message()),
              "rank 2 is not on a GPU, rank 0 is: all ranks of a group must be on GPUs, or none");
  }
}

TEST(HostFabric, GroupsGoThroughTheHost) {
  std::vector<PathFabric*> fabrics;
  TestingRanks ranks(
      [&]() -> std::unique_ptr<Fabric> {
        auto made = MakeHostFabric({.hosts = {.tls = "self,shm"}});
        EXPECT_TRUE(made.ok()) << made.status();
        fabrics.push_back(made->get());
        return *std::move(made);
      },
      2);
  ExpectOk(TestingRanks::Run(ranks.GroupOfAll(), CheckEverything));
  ASSERT_EQ(fabrics[0]->Totals().size(), 1u);
  EXPECT_EQ(fabrics[0]->Totals()[0].path, CommPath::kHost);
  EXPECT_EQ(fabrics[0]->Totals()[0].why_not, "");
  const std::vector<int> both = {0, 1};
  const auto group = fabrics[0]->MakeGroup({77, 1}, ranks.Addresses(both), 0);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(fabrics[0]->WhyThroughHost(**group), std::nullopt) << "no device, no slower path";
}

TEST(HostFabric, RefusesPathsOfGpus) {
  const absl::Status status = MakeHostFabric({.path = CommPath::kNccl}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(std::string(status.message()), "comm_path: 'nccl' takes a GPU (device cuda:N)");
}

}  // namespace
}  // namespace skein::engine

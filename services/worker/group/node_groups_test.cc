// The groups of a node's instances, over the fabric of workers on the host.
#include "services/worker/group/node_groups.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "engine/comm/paths/worker_fabric.h"
#include "engine/parallel/shard_layout.h"

namespace skein::services {
namespace {

class NodeGroupsTest : public ::testing::Test {
 protected:
  void Start(int instances) {
    for (int i = 0; i < instances; ++i) {
      auto fabric = engine::MakeHostFabric({.hosts = {.tls = "self,shm"}});
      ASSERT_TRUE(fabric.ok()) << fabric.status();
      fabrics_.push_back(*std::move(fabric));
      nodes_.push_back(std::make_unique<NodeGroups>(fabrics_.back().get()));
    }
  }
  void End(size_t index) {
    nodes_[index].reset();
    fabrics_[index].reset();
  }
  // To those that live, as the orchestrator does.
  void Order(uint64_t generation) {
    scheduler::GroupOrder order{.generation = generation, .index = 0, .members = {}};
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i] != nullptr) order.members.push_back({{i + 1}, fabrics_[i]->Address()});
    }
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      node->Take(order);
      ++order.index;
    }
  }
  // Until each of them has made it.
  void Await(uint64_t generation) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      while (node->generations().made != generation) {
        ASSERT_NE(node->generations().failed, generation);
        ASSERT_LT(std::chrono::steady_clock::now(), until) << "it is still being made";
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  std::shared_ptr<engine::GroupContext> Take(size_t index, int first, int size) {
    std::vector<int> members(static_cast<size_t>(size));
    std::iota(members.begin(), members.end(), first);
    auto context = nodes_[index]->contexts().Take(members);
    EXPECT_TRUE(context.ok()) << context.status();
    return context.ok() ? *context : nullptr;
  }

  // An exchange in this mode, at all members of the group.
  void Use(int first, engine::GroupMode mode) {
    std::vector<std::thread> threads;
    for (int i = first; i < first + mode.ranks(); ++i) {
      threads.emplace_back([this, i, first, mode] {
        const auto context = Take(static_cast<size_t>(i), first, mode.ranks());
        if (context == nullptr) return;
        const engine::GroupPart part =
            context->Part(mode, std::chrono::steady_clock::now() + std::chrono::minutes(1));
        float one = 1;
        engine::Communicator* const comm = mode.tp > 1 ? part.tp : part.sp;
        const absl::Status met = comm->AllReduce(&one, 1, engine::DType::kF32, part.deadline);
        EXPECT_TRUE(met.ok()) << met;
        EXPECT_EQ(one, static_cast<float>(comm->Size()));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<engine::PathFabric>> fabrics_;
  std::vector<std::unique_ptr<NodeGroups>> nodes_;
};

TEST_F(NodeGroupsTest, AThousandRandomPlansMakeNoLinkAndNoCommunicator) {
  Start(8);
  Order(1);
  ASSERT_NO_FATAL_FAILURE(Await(1));
  std::vector<engine::FabricCounts> before;
  for (const auto& node : nodes_) before.push_back(node->made());
  EXPECT_EQ(before[0].links, 7u);
  std::mt19937 random(16);
  for (int plan = 0; plan < 1000; ++plan) {
    const int size = 2 << random() % 3;
    const int first = static_cast<int>(random() % (8 / size)) * size;
    const std::vector<engine::GroupMode> modes = engine::ModesOf(size);
    Use(first, modes[random() % modes.size()]);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    EXPECT_EQ(nodes_[i]->made().links, before[i].links);
    EXPECT_EQ(nodes_[i]->made().groups, before[i].groups);
  }
}

TEST_F(NodeGroupsTest, TheFeedOfAContextReachesItsRanks) {
  Start(4);
  Order(1);
  ASSERT_NO_FATAL_FAILURE(Await(1));
  for (const int size : {2, 4}) {
    const auto lead = Take(0, 0, size);
    const auto last = Take(static_cast<size_t>(size - 1), 0, size);
    last->feed()->Send(0, "free blocks");
    lead->feed()->Send(size - 1, "a plan");
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    const auto at_last = last->feed()->Wait(until);
    ASSERT_EQ(at_last.size(), 1u);
    EXPECT_EQ(at_last[0].rank, 0);
    EXPECT_EQ(at_last[0].message, "a plan");
    const auto at_lead = lead->feed()->Wait(until);
    ASSERT_EQ(at_lead.size(), 1u);
    EXPECT_EQ(at_lead[0].rank, size - 1);
    EXPECT_EQ(at_lead[0].message, "free blocks");
  }
}

TEST_F(NodeGroupsTest, TheWayOfEachGroupIsToldBeforeAndAfterItMovesBytes) {
  Start(4);
  EXPECT_TRUE(nodes_[0]->Ways().empty());
  Order(1);
  ASSERT_NO_FATAL_FAILURE(Await(1));
  std::vector<engine::CommTotals> ways = nodes_[0]->Ways();
  ASSERT_EQ(ways.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(ways[i].ranks, i == 0 ? 2 : 4);
    EXPECT_EQ(ways[i].path, engine::CommPath::kHost);
    EXPECT_EQ(ways[i].bytes, 0u);
  }
  Use(0, {.sp = 1, .tp = 4});
  ways = nodes_[0]->Ways();
  EXPECT_EQ(ways[0].bytes, 0u);
  EXPECT_GT(ways[1].bytes, 0u);
  EXPECT_GT(ways[1].busy_seconds, 0);
}

TEST_F(NodeGroupsTest, WhatBreaksIsToldAndMadeAnewUnderAnotherGeneration) {
  Start(4);
  Order(3);
  ASSERT_NO_FATAL_FAILURE(Await(3));
  Order(3);
  EXPECT_EQ(nodes_[0]->generations().made, 3u) << "it has that generation";
  const auto broken = Take(1, 0, 4);
  broken->Abort(absl::UnavailableError("a step failed"));
  EXPECT_EQ(nodes_[1]->generations().failed, 3u);
  EXPECT_EQ(nodes_[1]->generations().made, 0u);
  Order(4);
  ASSERT_NO_FATAL_FAILURE(Await(4));
  Use(0, {.sp = 2, .tp = 2});
  End(0);
  Order(5);  // of three: one pair is aligned
  ASSERT_NO_FATAL_FAILURE(Await(5));
  EXPECT_EQ(Take(1, 0, 2)->rank(), 0);
  EXPECT_FALSE(nodes_[3]->contexts().Take(std::vector<int>{2, 3}).ok());
}

}  // namespace
}  // namespace skein::services

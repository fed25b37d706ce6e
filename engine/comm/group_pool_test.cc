#include "engine/comm/group_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"

namespace skein::engine {
namespace {

// Counts the groups that it makes.
class CountingFabric : public Fabric {
 public:
  explicit CountingFabric(std::unique_ptr<Fabric> inner) : inner_(std::move(inner)) {}

  const std::string& Address() const override { return inner_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    ++made;
    return inner_->MakeGroup(id, addresses, rank);
  }

  int made = 0;

 private:
  const std::unique_ptr<Fabric> inner_;
};

struct Node {
  explicit Node(int count) {
    for (int i = 0; i < count; ++i) {
      fabrics.push_back(std::make_unique<CountingFabric>(hub.MakeFabric()));
      addresses.push_back(fabrics.back()->Address());
    }
    for (int i = 0; i < count; ++i) {
      auto pool = GroupPool::Make(fabrics[i].get(), 1, addresses, i);
      EXPECT_TRUE(pool.ok()) << pool.status();
      pools.push_back(*std::move(pool));
    }
  }

  LocalHub hub;
  std::vector<std::unique_ptr<CountingFabric>> fabrics;
  std::vector<std::string> addresses;
  std::vector<std::unique_ptr<GroupPool>> pools;
};

std::vector<int> Neighbours(int first, int size) {
  std::vector<int> members;
  for (int i = 0; i < size; ++i) members.push_back(first + i);
  return members;
}

TEST(GroupPool, MakesEveryAlignedGroupOnceAndNothingWhenTaken) {
  Node node(8);
  for (const auto& fabric : node.fabrics) EXPECT_EQ(fabric->made, 4);  // of 1, 2, 4 and 8
  for (int round = 0; round < 3; ++round) {
    for (int size = 1; size <= 8; size *= 2) {
      for (int i = 0; i < 8; ++i) {
        auto group = node.pools[i]->Take(Neighbours(i / size * size, size));
        ASSERT_TRUE(group.ok()) << group.status();
        EXPECT_EQ((*group)->Size(), size);
        EXPECT_EQ((*group)->Rank(), i % size);
        EXPECT_EQ(*node.pools[i]->Take(Neighbours(i / size * size, size)), *group);
      }
    }
  }
  for (const auto& fabric : node.fabrics) EXPECT_EQ(fabric->made, 4);
}

TEST(GroupPool, ANodeOfAnyNumber) {
  Node node(6);
  const int made[] = {3, 3, 3, 3, 2, 2};  // {4, 5} has no aligned four
  for (int i = 0; i < 6; ++i) EXPECT_EQ(node.fabrics[i]->made, made[i]) << i;
  EXPECT_TRUE(node.pools[5]->Take(Neighbours(4, 2)).ok());
  EXPECT_FALSE(node.pools[5]->Take(Neighbours(4, 4)).ok());
}

TEST(GroupPool, RefusesWhatItDoesNotHold) {
  Node node(8);
  const std::vector<std::vector<int>> wrong = {
      {}, {1}, {0, 2}, {1, 2}, {1, 0}, {0, 1, 2}, {2, 3, 4, 5}, {4, 5, 6, 7}, {-2, -1}};
  for (const auto& members : wrong) {
    EXPECT_TRUE(absl::IsInvalidArgument(node.pools[0]->Take(members).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      GroupPool::Make(node.fabrics[0].get(), 2, node.addresses, 8).status()));
}

TEST(GroupPool, GroupsOfAllSizesWorkInTurn) {
  Node node(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(node.pools[i]->Connect(Later()).ok());
      for (int size : {4, 1, 2, 4, 2}) {
        float value = 1;
        auto group = node.pools[i]->Take(Neighbours(i / size * size, size));
        ASSERT_TRUE(group.ok());
        EXPECT_TRUE((*group)->AllReduce(&value, 1, DType::kF32, Later()).ok());
        EXPECT_EQ(value, static_cast<float>(size));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace skein::engine

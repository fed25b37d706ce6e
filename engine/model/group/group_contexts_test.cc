#include "engine/model/group/group_contexts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/fault_communicator.h"
#include "engine/comm/testing/ranks.h"

namespace skein::engine {
namespace {

std::vector<int> Neighbours(int first, int size) {
  std::vector<int> members;
  for (int i = 0; i < size; ++i) members.push_back(first + i);
  return members;
}

class Node {
 public:
  explicit Node(int count) {
    for (int i = 0; i < count; ++i) {
      fabrics_.push_back(hub_.MakeFabric());
      addresses_.push_back(fabrics_.back()->Address());
      contexts_.push_back(Instance(i));
    }
  }

  std::unique_ptr<GroupContexts> Instance(int index) {
    return std::make_unique<GroupContexts>(
        fabrics_[static_cast<size_t>(index)].get(), fabrics_[static_cast<size_t>(index)].get(),
        GroupContexts::Options{
            .made = [this, index](uint64_t generation, const absl::Status& status) {
              const std::lock_guard lock(mutex_);
              made_[{index, generation}] = status;
              changed_.notify_all();
            }});
  }
  GroupContexts& at(int index) { return *contexts_[static_cast<size_t>(index)]; }
  void Kill(int index) {
    contexts_[static_cast<size_t>(index)].reset();
    fabrics_[static_cast<size_t>(index)].reset();
  }
  // Another process in its place, with another address.
  void Replace(int index) {
    fabrics_[static_cast<size_t>(index)] = hub_.MakeFabric();
    addresses_[static_cast<size_t>(index)] = fabrics_[static_cast<size_t>(index)]->Address();
    contexts_[static_cast<size_t>(index)] = Instance(index);
  }

  absl::Status MakeAt(int index, uint64_t generation) {
    return at(index).Make({generation, addresses_, index});
  }
  void MakeAll(uint64_t generation) {
    for (int i = 0; i < Size(); ++i) EXPECT_TRUE(MakeAt(i, generation).ok());
  }
  absl::Status Await(int index, uint64_t generation) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return made_.contains({index, generation}); });
    return made_.at({index, generation});
  }
  void AwaitAll(uint64_t generation) {
    for (int i = 0; i < Size(); ++i) EXPECT_TRUE(Await(i, generation).ok());
  }
  int Size() const { return static_cast<int>(contexts_.size()); }
  uint64_t Groups(int index) const { return fabrics_[static_cast<size_t>(index)]->Made().groups; }

  // One exchange in every mode of the group, at each of its members.
  std::vector<absl::Status> Use(int first, int size) {
    std::vector<absl::Status> ends(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int i = 0; i < size; ++i) {
      threads.emplace_back(
          [&, i] { ends[static_cast<size_t>(i)] = UseAt(first + i, first, size); });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

 private:
  absl::Status UseAt(int index, int first, int size) {
    const auto context = at(index).Take(Neighbours(first, size));
    if (!context.ok()) return context.status();
    EXPECT_EQ((*context)->rank(), index - first);
    for (const GroupMode mode : ModesOf(size)) {
      const GroupPart part = (*context)->Part(mode, Later());
      float one = 1;
      absl::Status status = part.all->AllReduce(&one, 1, DType::kF32, part.deadline);
      EXPECT_TRUE(!status.ok() || one == static_cast<float>(size));
      if (status.ok() && mode.tp > 1) {
        one = 1;
        status = part.tp->AllReduce(&one, 1, DType::kF32, part.deadline);
        EXPECT_TRUE(!status.ok() || one == static_cast<float>(mode.tp));
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  LocalHub hub_;
  std::vector<std::unique_ptr<RingFabric>> fabrics_;
  std::vector<std::string> addresses_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, uint64_t>, absl::Status> made_;
  std::vector<std::unique_ptr<GroupContexts>> contexts_;
};

void ExpectAllOk(const std::vector<absl::Status>& ends) {
  for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
}

TEST(GroupContexts, EveryAlignedGroupIsThereAndUsingItMakesNothing) {
  Node node(8);
  EXPECT_TRUE(absl::IsUnavailable(node.at(0).Take(Neighbours(0, 2)).status()) ||
              absl::IsInvalidArgument(node.at(0).Take(Neighbours(0, 2)).status()));
  node.MakeAll(1);
  node.AwaitAll(1);
  std::vector<uint64_t> made;
  for (int i = 0; i < 8; ++i) {
    made.push_back(node.Groups(i));
    EXPECT_EQ(node.at(i).made(), 3u);
  }
  for (int round = 0; round < 20; ++round) {
    for (const int size : {2, 4, 8}) {
      for (int first = 0; first < 8; first += size) ExpectAllOk(node.Use(first, size));
    }
  }
  for (int i = 0; i < 8; ++i) EXPECT_EQ(node.Groups(i), made[static_cast<size_t>(i)]);
}

TEST(GroupContexts, OnlyAlignedNeighboursFormAGroup) {
  Node node(6);
  node.MakeAll(1);
  node.AwaitAll(1);
  EXPECT_TRUE(node.at(4).Take(Neighbours(4, 2)).ok());
  for (const auto& members : {Neighbours(3, 2), Neighbours(4, 4), Neighbours(0, 3),
                              std::vector<int>{4}, std::vector<int>{}, std::vector<int>{5, 4}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(node.at(4).Take(members).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(node.at(0).Take(Neighbours(4, 2)).status()));
}

TEST(GroupContexts, NoGroupIsLargerThanAWorkerRuns) {
  Node node(2 * kGroupRanksMax);
  node.MakeAll(1);
  node.AwaitAll(1);
  for (int i = 0; i < node.Size(); ++i) EXPECT_EQ(node.at(i).made(), 3u) << "of 2, 4 and 8";
  ExpectAllOk(node.Use(kGroupRanksMax, kGroupRanksMax));
  EXPECT_TRUE(absl::IsInvalidArgument(node.at(0).Take(Neighbours(0, 2 * kGroupRanksMax)).status()));
}

TEST(GroupContexts, ABrokenGroupIsMadeAgainUnderANewGeneration) {
  Node node(4);
  node.MakeAll(1);
  node.AwaitAll(1);
  const auto former = node.at(0).Take(Neighbours(0, 4));
  ASSERT_TRUE(former.ok());
  (*former)->Abort(absl::UnavailableError("test"));
  for (const absl::Status& end : node.Use(0, 4)) EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  ExpectAllOk(node.Use(0, 2));
  node.MakeAll(2);
  node.AwaitAll(2);
  ExpectAllOk(node.Use(0, 4));
  EXPECT_EQ((*node.at(0).Take(Neighbours(0, 4)))->generation(), 2u);
  EXPECT_EQ((*former)->generation(), 1u) << "who holds it may keep it";
}

TEST(GroupContexts, AnInstanceThatDiesWhileTheyAreMadeEndsTheWait) {
  Node node(4);
  for (const int i : {0, 1, 3}) ASSERT_TRUE(node.MakeAt(i, 1).ok());
  // In-process, a death is told to groups that are there: of two, and of four in each mode, and
  // their hosts'.
  for (const int i : {0, 1, 3}) {
    while (node.Groups(i) < 6) std::this_thread::yield();
  }
  node.Kill(2);
  for (const int i : {0, 1, 3}) EXPECT_TRUE(absl::IsUnavailable(node.Await(i, 1)));
  EXPECT_TRUE(absl::IsUnavailable(node.at(0).Take(Neighbours(0, 2)).status()));
  node.Replace(2);
  node.MakeAll(2);
  node.AwaitAll(2);
  for (const int size : {2, 4}) ExpectAllOk(node.Use(0, size));
}

TEST(GroupContexts, ANewGenerationEndsTheWaitForTheFormer) {
  Node node(2);
  ASSERT_TRUE(node.MakeAt(0, 5).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(node.MakeAt(0, 5)));
  EXPECT_TRUE(absl::IsFailedPrecondition(node.MakeAt(0, 4)));
  EXPECT_TRUE(absl::IsUnavailable(node.at(0).Take(Neighbours(0, 2)).status()));
  node.MakeAll(6);
  node.AwaitAll(6);
  ExpectAllOk(node.Use(0, 2));
}

// Makes communicators that tell on which thread they end.
class WatchedFabric final : public Fabric {
 public:
  explicit WatchedFabric(RingFabric* inner) : inner_(inner) {}
  const std::string& Address() const override { return inner_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto made = inner_->MakeGroup(id, addresses, rank);
    if (!made.ok()) return made;
    ++live_;
    return std::make_unique<Watched>(*std::move(made), this);
  }
  int live() const { return live_; }
  bool EndedOn(std::thread::id thread) {
    const std::lock_guard lock(mutex_);
    return ended_on_.contains(thread);
  }

 private:
  class Watched final : public FaultCommunicator {
   public:
    Watched(std::unique_ptr<Communicator> comm, WatchedFabric* fabric)
        : FaultCommunicator(std::move(comm), [](uint64_t) { return CommFault{}; }),
          fabric_(fabric) {}
    ~Watched() override {
      const std::lock_guard lock(fabric_->mutex_);
      fabric_->ended_on_.insert(std::this_thread::get_id());
      --fabric_->live_;
    }

   private:
    WatchedFabric* const fabric_;
  };

  RingFabric* const inner_;
  std::atomic<int> live_{0};
  std::mutex mutex_;
  std::set<std::thread::id> ended_on_;
};

// Make is called by a thread that may not wait, and the end of communicators on GPUs does. Their
// hosts' groups end when the feed is joined.
TEST(GroupContexts, FormerContextsEndInTheBackground) {
  LocalHub hub;
  std::vector<std::unique_ptr<RingFabric>> fabrics;
  std::vector<std::unique_ptr<WatchedFabric>> watched, hosts;
  std::vector<std::unique_ptr<GroupContexts>> contexts;
  std::vector<std::string> addresses;
  for (int i = 0; i < 2; ++i) {
    fabrics.push_back(hub.MakeFabric());
    addresses.push_back(fabrics.back()->Address());
    watched.push_back(std::make_unique<WatchedFabric>(fabrics.back().get()));
    hosts.push_back(std::make_unique<WatchedFabric>(fabrics.back().get()));
    contexts.push_back(std::make_unique<GroupContexts>(watched.back().get(), hosts.back().get(),
                                                       GroupContexts::Options{}));
  }
  for (const uint64_t generation : {1, 2, 3}) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(contexts[static_cast<size_t>(i)]->Make({generation, addresses, i}).ok());
    }
    for (size_t i = 0; i < 2; ++i) {
      while (!contexts[i]->state().ready) std::this_thread::yield();
      EXPECT_EQ(watched[i]->live(), 1) << "the former ones have ended";
      EXPECT_FALSE(watched[i]->EndedOn(std::this_thread::get_id()));
      EXPECT_EQ(hosts[i]->live(), 0);
    }
  }
}

TEST(GroupContexts, ItsEndWaitsForNobody) {
  Node node(2);
  ASSERT_TRUE(node.MakeAt(0, 1).ok());
  node.Kill(0);
}

}  // namespace
}  // namespace skein::engine

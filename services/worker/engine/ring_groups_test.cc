// The rings of a pool's instances, over the links that workers use.
#include "services/worker/engine/ring_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/paths/worker_fabric.h"
#include "scheduler/worker/steps/tensor_members.h"

namespace skein::services {
namespace {

constexpr int kInstances = 8;
constexpr int kPlans = 1000;

// A pool whose instances are connected as registration does it.
class Pool {
 public:
  Pool() {
    for (int i = 0; i < kInstances; ++i) {
      auto fabric = engine::MakeHostFabric({.hosts = {.tls = "self,shm"}});
      EXPECT_TRUE(fabric.ok()) << fabric.status();
      fabrics_.push_back(*std::move(fabric));
      rings_.push_back(std::make_unique<RingGroups>(fabrics_.back().get()));
    }
    for (const auto& one : fabrics_) {
      for (const auto& other : fabrics_) EXPECT_TRUE(one->Connect(other->Address()).ok());
    }
  }

  RingGroups& rings(int instance) { return *rings_[static_cast<size_t>(instance)]; }

  std::vector<std::string> AddressesOf(const std::vector<int>& members) const {
    std::vector<std::string> addresses;
    for (const int member : members) {
      addresses.push_back(fabrics_[static_cast<size_t>(member)]->Address());
    }
    return addresses;
  }

  // "links/groups" of each instance.
  std::vector<std::string> Made() const {
    std::vector<std::string> made;
    for (const auto& fabric : fabrics_) {
      const engine::FabricCounts counts = fabric->Made();
      made.push_back(std::to_string(counts.links) + "/" + std::to_string(counts.groups));
    }
    return made;
  }

 private:
  std::vector<std::unique_ptr<engine::PathFabric>> fabrics_;
  std::vector<std::unique_ptr<RingGroups>> rings_;
};

struct RandomPlan {
  std::vector<int> members;  // by rank
  int tp = 1;
  int pieces = 1;
  bool moves = false;  // before the first piece
  int quitter = -1;    // the rank that gives the plan up before its last piece
};

RandomPlan MakePlan(std::mt19937* random) {
  const auto below = [&](int limit) {
    return static_cast<int>((*random)() % static_cast<uint32_t>(limit));
  };
  RandomPlan plan;
  plan.members.resize(kInstances);
  std::iota(plan.members.begin(), plan.members.end(), 0);
  std::shuffle(plan.members.begin(), plan.members.end(), *random);
  plan.members.resize(static_cast<size_t>(1 + below(kInstances)));
  while (plan.members.size() % static_cast<size_t>(plan.tp * 2) == 0 && below(2) == 0) plan.tp *= 2;
  plan.pieces = 1 + below(3);
  plan.moves = below(2) == 0;
  const int size = static_cast<int>(plan.members.size());
  if (size > 1 && below(8) == 0) plan.quitter = below(size);
  return plan;
}

scheduler::RingPart PartOf(const RandomPlan& plan, const Pool& pool, uint64_t chunk, int piece,
                           int rank) {
  scheduler::RingPart part;
  part.rank = rank;
  part.comm_addresses = pool.AddressesOf(plan.members);
  part.group = {chunk, 0};
  part.moves_group = {chunk, 1};
  part.tp = plan.tp;
  if (plan.tp > 1) part.tensor_group = {chunk, 2};
  if (plan.moves && piece == 0) part.piece.moves.push_back({});
  part.deadline_us =
      std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::steady_clock::now().time_since_epoch() + std::chrono::minutes(10))
          .count();
  return part;
}

// Each rank of a tensor group tells the others its rank in the step.
absl::Status ExchangeInTensorGroup(const engine::RingStep& step) {
  EXPECT_EQ(step.tensor != nullptr, step.tp > 1);
  if (step.tensor == nullptr) return absl::OkStatus();
  const auto rank = static_cast<uint64_t>(step.comm->Rank()), tp = static_cast<uint64_t>(step.tp);
  EXPECT_EQ(step.tensor->Size(), step.tp);
  EXPECT_EQ(static_cast<uint64_t>(step.tensor->Rank()), rank % tp);
  std::vector<uint64_t> got(tp), neighbours(tp);
  std::iota(neighbours.begin(), neighbours.end(), rank / tp * tp);
  absl::Status status = step.tensor->AllGather(
      std::as_bytes(std::span(&rank, 1)), std::as_writable_bytes(std::span(got)), step.deadline);
  EXPECT_TRUE(!status.ok() || got == neighbours);
  return status;
}

// What a step does on its rings: an agreement, dense parts shared, a block passed round, blocks
// moved.
absl::Status Exchange(const engine::RingStep& step, uint64_t chunk) {
  if (step.comm == nullptr) return absl::OkStatus();
  const int size = step.comm->Size(), rank = step.comm->Rank();
  std::vector<uint64_t> all(static_cast<size_t>(size));
  all[static_cast<size_t>(rank)] = chunk;
  const auto own = std::as_bytes(std::span(all).subspan(static_cast<size_t>(rank), 1));
  absl::Status status =
      step.comm->AllGather(own, std::as_writable_bytes(std::span(all)), step.deadline);
  if (!status.ok()) return status;
  EXPECT_EQ(all, std::vector<uint64_t>(all.size(), chunk));
  if (status = ExchangeInTensorGroup(step); !status.ok()) return status;
  const std::vector<uint64_t> out(100, chunk * 8 + static_cast<uint64_t>(rank));
  std::vector<uint64_t> in(out.size());
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  status = step.comm->SendRecv(std::as_bytes(std::span(out)), next,
                               std::as_writable_bytes(std::span(in)), before, step.deadline);
  if (!status.ok()) return status;
  EXPECT_EQ(in, std::vector<uint64_t>(in.size(), chunk * 8 + static_cast<uint64_t>(before)));
  if (step.moves == nullptr) return absl::OkStatus();
  return step.moves->AllGather({}, {}, step.deadline);
}

// The member's part of a plan; a quitter says before the last piece that it does not come.
absl::Status RunMember(const RandomPlan& plan, Pool* pool, uint64_t chunk, int rank) {
  RingGroups& rings = pool->rings(plan.members[static_cast<size_t>(rank)]);
  for (int piece = 0; piece < plan.pieces; ++piece) {
    const scheduler::RingPart part = PartOf(plan, *pool, chunk, piece, rank);
    if (rank == plan.quitter && piece + 1 == plan.pieces) {
      const absl::Status given_up = absl::UnavailableError("given up");
      if (plan.tp > 1) {
        rings.Break({part.tensor_group, rank % plan.tp,
                     scheduler::TensorMembers(part.comm_addresses, rank, plan.tp)},
                    given_up);
      }
      rings.Break({part.group, rank, part.comm_addresses}, given_up);
      return absl::CancelledError("this member gave up");
    }
    const absl::StatusOr<engine::RingStep> step =
        rings.Enter(chunk * 4 + static_cast<uint64_t>(piece), part);
    if (!step.ok()) return step.status();
    const absl::Status ran = Exchange(*step, chunk);
    rings.Leave(ran);
    if (!ran.ok()) return ran;
  }
  return absl::OkStatus();
}

TEST(RingGroups, LinksAndCommunicatorsStandStillOverAThousandPlans) {
  Pool pool;
  const std::vector<std::string> made(kInstances, std::to_string(kInstances - 1) + "/0");
  ASSERT_EQ(pool.Made(), made) << "one link for each other instance, no communicator";
  std::mt19937 random(16);
  int given_up = 0, tensor = 0;
  for (uint64_t chunk = 1; chunk <= kPlans; ++chunk) {
    const RandomPlan plan = MakePlan(&random);
    std::vector<absl::Status> ends(plan.members.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < plan.members.size(); ++rank) {
      threads.emplace_back(
          [&, rank] { ends[rank] = RunMember(plan, &pool, chunk, static_cast<int>(rank)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      if (plan.quitter < 0) {
        ASSERT_TRUE(ends[rank].ok()) << "plan " << chunk << ", rank " << rank << ": " << ends[rank];
      } else if (static_cast<int>(rank) != plan.quitter) {
        ASSERT_TRUE(absl::IsUnavailable(ends[rank])) << ends[rank];
      }
    }
    given_up += plan.quitter >= 0 ? 1 : 0;
    tensor += plan.tp > 1 ? 1 : 0;
  }
  EXPECT_GT(given_up, kPlans / 20) << "so rings were broken, and links were not";
  EXPECT_GT(tensor, kPlans / 10) << "so rings of tensor groups were opened";
  EXPECT_EQ(pool.Made(), made);
}

}  // namespace
}  // namespace skein::services

// Rings over lanes, of eight instances in one process: their hosts' links are UCX's, their lanes as
// unforgiving as NCCL's (far_lanes.h).
#include "engine/comm/device/lanes/lane_fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/testing/far_lanes.h"
#include "engine/comm/testing/ranks.h"
#include "engine/comm/ucx/ucx_link_fabric.h"
#include "engine/device/testing/far_device.h"

namespace skein::engine {
namespace {

constexpr size_t kFarBytes = size_t{16} << 20;
constexpr size_t kEach = 64;  // bytes of a rank in an exchange

struct Plan {
  uint64_t name = 0;  // of its two rings: this and the next
  std::vector<int> members;
  int calls = 0;
  bool breaks = false;  // its first member aborts its first ring before the last call
};

class Pool {
 public:
  // Over tcp the end of a fabric looks to others like that of its process.
  explicit Pool(int instances, std::string tls = "self,shm") : tls_(std::move(tls)) {
    for (int i = 0; i < instances; ++i) {
      devices_.push_back(std::make_shared<FarDevice>(kFarBytes));
      fabrics_.push_back(Make(i));
    }
  }

  // Another process comes in the place of one.
  void Replace(int instance) {
    fabrics_[instance].reset();
    fabrics_[instance] = Make(instance);
  }

  // Each instance computes the plans that it is in, in their order.
  void Run(const std::vector<Plan>& plans) {
    std::vector<std::thread> threads;
    for (int i = 0; i < Instances(); ++i) {
      threads.emplace_back([this, i, &plans] {
        for (const Plan& plan : plans) {
          const auto at = std::find(plan.members.begin(), plan.members.end(), i);
          if (at != plan.members.end()) Step(plan, static_cast<int>(at - plan.members.begin()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(hub_->Mistake(), "");
  }

  int Instances() const { return static_cast<int>(fabrics_.size()); }
  uint64_t Lanes(int instance) const { return fabrics_[instance]->Made().groups; }
  int exchanged() const { return exchanged_; }
  int LaneEnds() const { return hub_->Ends(); }

 private:
  std::unique_ptr<LaneFabric> Make(int instance) {
    std::shared_ptr<LinkFabric> hosts = MakeUcxLinkFabric({.tls = tls_}).value();
    return std::make_unique<LaneFabric>(std::move(hosts),
                                        MakeFarLaneMaker(hub_, devices_[instance]));
  }

  // As an instance's step: the pieces by one thread, the moves by another.
  void Step(const Plan& plan, int rank) {
    const auto pieces = Open(plan, plan.name, rank), moves = Open(plan, plan.name + 1, rank);
    std::thread mover([&] { Exchange(plan, moves.get(), false); });
    Exchange(plan, pieces.get(), plan.breaks);
    mover.join();
  }

  std::unique_ptr<Communicator> Open(const Plan& plan, uint64_t name, int rank) {
    std::vector<std::string> addresses;
    for (const int member : plan.members) addresses.push_back(fabrics_[member]->Address());
    auto opened = fabrics_[plan.members[rank]]->OpenRing({7, name}, addresses, rank);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }

  void Exchange(const Plan& plan, Communicator* ring, bool breaks) {
    const int rank = ring->Rank(), size = ring->Size();
    FarDevice* const device = devices_[plan.members[rank]].get();
    const size_t bytes = kEach * static_cast<size_t>(size);
    auto* const far = static_cast<std::byte*>(device->Alloc(bytes).value());
    EXPECT_TRUE(device->Synchronize().ok());  // it is cleared
    for (int call = 0; call < plan.calls; ++call) {
      const bool last = call + 1 == plan.calls;
      if (breaks && last && rank == 0) ring->Abort(absl::CancelledError("the prompt was given up"));
      std::byte* const near = device->NearOf(far);
      for (int r = 0; r < size; ++r) {
        std::memset(near + kEach * r, r == rank ? Word(plan, call, r) : 0, kEach);
      }
      const absl::Status status =
          ring->AllGather({far + kEach * rank, kEach}, {far, bytes}, Later());
      if (breaks && last) break;
      EXPECT_TRUE(status.ok() || breaks) << status;
      if (!status.ok()) break;
      ++exchanged_;
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(static_cast<int>(near[kEach * (r + 1) - 1]), Word(plan, call, r));
      }
    }
    device->Free(far, bytes);
  }

  static int Word(const Plan& plan, int call, int rank) {
    return static_cast<int>((plan.name * 31 + static_cast<uint64_t>(call) * 7 + rank) % 251) + 1;
  }

  const std::string tls_;
  const std::shared_ptr<FarLaneHub> hub_ = std::make_shared<FarLaneHub>();
  std::vector<std::shared_ptr<FarDevice>> devices_;
  std::vector<std::unique_ptr<LaneFabric>> fabrics_;
  std::atomic<int> exchanged_{0};
};

std::vector<Plan> RandomPlans(int count, int instances, uint64_t seed, uint64_t* name) {
  std::mt19937_64 random(seed);
  std::vector<int> all;
  for (int i = 0; i < instances; ++i) all.push_back(i);
  std::vector<Plan> plans;
  for (int i = 0; i < count; ++i) {
    std::shuffle(all.begin(), all.end(), random);
    const size_t members = 2 + random() % (all.size() - 1);
    plans.push_back({(*name += 2),
                     {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(members)},
                     1 + static_cast<int>(random() % 3)});
  }
  return plans;
}

Plan OfAll(int instances, uint64_t* name) {
  Plan plan{.name = (*name += 2), .calls = 2};
  for (int i = 0; i < instances; ++i) plan.members.push_back(i);
  return plan;
}

// Of each pair of instances a step needs two lanes, and all steps use the same.
TEST(LaneFabric, LanesMadeStandStillOverRandomPlans) {
  uint64_t name = 0;
  Pool pool(8);
  for (int a = 0; a < 8; ++a) {  // as when they register: one ring of each pair
    for (int b = 0; b < a; ++b) pool.Run({{(name += 2), {a, b}, 1}});
  }
  std::vector<uint64_t> made;
  for (int i = 0; i < 8; ++i) {
    made.push_back(pool.Lanes(i));
  }
  pool.Run(RandomPlans(1000, 8, 1, &name));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(pool.Lanes(i), made[i]) << i;
  }
}

// A process that dies while it is in no ring is in none that fails, either.
TEST(LaneFabric, LanesOfProcessesThatDiedEnd) {
  uint64_t name = 0;
  Pool pool(3, "self,tcp");
  // Two ends of each lane. Of each pair two rings are open at once, and one lane may be made
  // beside.
  const int most = 3 * 2 * (2 + kLanesAtFirst - 1);
  for (int round = 0; round < 12; ++round) {
    pool.Run({OfAll(3, &name)});
    while (pool.LaneEnds() > most) pool.Run({OfAll(3, &name)});
    pool.Replace(round % 3);
  }
}

TEST(LaneFabric, ARingThatIsBrokenCostsOthersNothing) {
  uint64_t name = 0;
  Pool pool(4);
  pool.Run({OfAll(4, &name)});
  for (int round = 0; round < 50; ++round) {
    std::vector<Plan> plans = RandomPlans(4, 4, static_cast<uint64_t>(round), &name);
    plans[static_cast<size_t>(round) % 3].breaks = true;
    pool.Run(plans);
  }
  std::vector<Plan> last = RandomPlans(50, 4, 99, &name);
  int calls = 0;
  for (const Plan& plan : last) calls += 2 * plan.calls * static_cast<int>(plan.members.size());
  const int before = pool.exchanged();
  pool.Run(last);
  EXPECT_EQ(pool.exchanged() - before, calls);
}

}  // namespace
}  // namespace skein::engine

// Which steps a bound group runs does not depend on --reproducible: on the same plans, every rank
// counts the same steps by mode, ranks and tokens, with and without reproducible operations.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/group/group_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/check.h"
#include "services/worker/group/group_rank.h"
#include "services/worker/group/testing/random_group_plans.h"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::services {
namespace {

constexpr int kVocabulary = 203;
constexpr int kBlocks = 240;  // for all requests at once: no rank refuses a plan
constexpr size_t kRequests = 6;

using Totals = std::vector<StepTotals>;

std::string ModelDir() {
  const std::string dir = ::testing::TempDir() + "/reproducible_group";
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 72},
                                 {"intermediate_size", 172},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 4},
                                 {"head_dim", 12},
                                 {"vocab_size", kVocabulary},
                                 {"max_position_embeddings", 1024}};
  const absl::Status written = tools::WriteRandomCheckpoint(
      dir, config, {.dtype = engine::DType::kBF16, .seed = 9, .shards = 1});
  SKEIN_CHECK_MSG(written.ok(), written.ToString().c_str());
  return dir;
}

std::unique_ptr<engine::GroupEngine> EngineOf(const std::string& dir, bool reproducible,
                                              int ranks) {
  engine::ModelEngineOptions options;
  options.num_blocks = kBlocks;
  options.max_batch_tokens = 256;
  return engine::GroupEngine::Make(
             dir, engine::MakeCpuOps({.threads = 1, .reproducible = reproducible}).value(),
             engine::MakeCpuDevice(), options, ranks)
      .value();
}

// What another thread waits for, once.
class Flag {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// One rank of a group, until the lead has answered all requests.
class Rank {
 public:
  Rank(const std::string& dir, bool reproducible, int ranks, engine::LocalHub* hub)
      : ranks_(ranks), engine_(EngineOf(dir, reproducible, ranks)), fabric_(hub->MakeFabric()) {}

  std::string Address() const { return fabric_->Address(); }

  // All ranks arrive at `offered`.
  void Run(const std::vector<std::string>& addresses, int rank, std::latch* offered) {
    std::atomic<bool> all_offered = false;
    Flag made, quiet, ended;
    engine::GroupContexts contexts(fabric_.get(), fabric_.get(),
                                   {.made = [&](uint64_t, const absl::Status&) { made.Set(); }});
    SKEIN_CHECK(contexts.Make({1, addresses, rank}).ok());
    made.Await();
    std::vector<int> members(addresses.size());
    std::iota(members.begin(), members.end(), 0);
    scheduler::BlockPool pool(kBlocks);
    testing::RandomGroupPlans plans(ranks_, kRequests);
    GroupRank::Options options;
    options.counts = &counts_;
    options.next = [&](const scheduler::GroupBatch& batch) {
      if (!all_offered) return std::optional<scheduler::FeedPlan>();
      auto plan = plans.Next(batch);
      if (!plan.has_value() && plans.AllOver()) quiet.Set();
      return plan;
    };
    options.completed = [&](const scheduler::StepCompleted&) { plans.Over(); };
    options.refused = [&](const scheduler::StepRefused& refused) {
      ADD_FAILURE() << refused.why;
      plans.Over();
    };
    options.stepped = [this](const scheduler::GroupStep&,
                             const std::vector<scheduler::StepResult>& results) {
      for (const scheduler::StepResult& result : results) {
        EXPECT_TRUE(result.status.ok()) << result.status;
        sampled_ += result.token >= 0 ? 1 : 0;
      }
    };
    options.ended = [&](const absl::Status& why, const auto&) {
      why_ = why;
      ended.Set();
      quiet.Set();
    };
    GroupRank group(engine_.get(), contexts.Take(members).value(), &pool, std::move(options));
    for (uint64_t serial = 1; serial <= kRequests; ++serial) {
      group.Offer({{serial}, testing::GroupRequest(serial, kVocabulary), nullptr, 0, {}});
    }
    offered->arrive_and_wait();
    all_offered = true;
    group.Look();
    if (rank == 0) quiet.Await();
    if (rank == 0) group.End(absl::CancelledError("all is answered"));
    ended.Await();
  }

  Totals totals() const { return counts_.Totals(); }
  int64_t sampled() const { return sampled_; }
  const absl::Status& why() const { return why_; }  // it ended

 private:
  const int ranks_;
  const std::unique_ptr<engine::GroupEngine> engine_;
  const std::unique_ptr<engine::RingFabric> fabric_;
  StepCounts counts_;
  int64_t sampled_ = 0;
  absl::Status why_;
};

int64_t OutputTokens() {
  int64_t tokens = 0;
  for (uint64_t serial = 1; serial <= kRequests; ++serial) {
    tokens += testing::GroupRequest(serial, kVocabulary)->max_tokens;
  }
  return tokens;
}

// By rank.
std::vector<Totals> StepsOf(const std::string& dir, bool reproducible, int ranks) {
  engine::LocalHub hub;
  std::vector<std::unique_ptr<Rank>> all;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(std::make_unique<Rank>(dir, reproducible, ranks, &hub));
    addresses.push_back(all.back()->Address());
  }
  std::vector<std::thread> threads;
  std::latch offered(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { all[static_cast<size_t>(rank)]->Run(addresses, rank, &offered); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(absl::IsCancelled(all[0]->why())) << all[0]->why();
  std::vector<Totals> steps;
  for (const auto& rank : all) {
    EXPECT_EQ(rank->sampled(), OutputTokens());
    steps.push_back(rank->totals());
  }
  return steps;
}

class ReproducibleGroup : public ::testing::TestWithParam<int> {};

TEST_P(ReproducibleGroup, RunsTheStepsOfOneThatIsNot) {
  const std::string dir = ModelDir();
  const std::vector<Totals> with = StepsOf(dir, true, GetParam());
  EXPECT_EQ(with, StepsOf(dir, false, GetParam()));
  size_t modes = 0;
  for (const StepTotals& one : with[0]) {
    std::printf("%s %d: %ld steps, %ld tokens\n", one.mode.c_str(), one.ranks,
                static_cast<long>(one.steps), static_cast<long>(one.tokens));
    modes += one.steps > 0 ? 1 : 0;
  }
  EXPECT_EQ(modes, engine::ModesOf(GetParam()).size());
}

INSTANTIATE_TEST_SUITE_P(OfSize, ReproducibleGroup, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::services

// Bound groups of processes: a lead and its members over the step feed, the communicators of a
// GroupContext, and engines whose tokens tell whether every block was where it must be. All ranks
// answer as one instance alone would, and whoever is killed, the others leave.
#include "services/worker/group/group_rank.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/comm/local/local_fabric.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/parallel/shard_layout.h"
#include "engine/stepping/step_engine.h"
#include "scheduler/vocabulary/check.h"
#include "services/worker/engine/sampling_codec.h"
#include "services/worker/group/testing/random_group_plans.h"

namespace skein::services {
namespace {

constexpr int kBlocks = 40;
constexpr int kRequests = 6;
constexpr int kVocabulary = 1 << 20;

engine::EmulatedOptions EngineOptions() {
  return {.kv = {{.num_layers = 2,
                  .kv_heads = 4,
                  .head_dim = 8,
                  .block_tokens = 4,
                  .dtype = engine::DType::kBF16},
                 kBlocks},
          .vocab_size = kVocabulary,
          .max_positions = 4096};
}

scheduler::SpecPtr SpecOf(uint64_t serial) { return testing::GroupRequest(serial, kVocabulary); }

struct Plan {
  int ranks = 2;
  int victim = -1;       // the rank that kills itself,
  int at_step = 0;       // in or after this step,
  bool in_step = false;  // between two layers of it
  bool stops = false;    // it is stopped instead
};

// A rank in a process of its own.
class RankProcess {
 public:
  RankProcess(const Plan& plan, int rank) {
    int to[2], from[2];
    EXPECT_EQ(pipe(to) + pipe(from), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Run(plan, rank, to[0], from[1]);
      _exit(0);
    }
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
  }
  ~RankProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    fclose(to_);
    fclose(from_);
  }
  RankProcess(const RankProcess&) = delete;

  void Tell(const std::string& line) {
    fputs((line + "\n").c_str(), to_);
    fflush(to_);
  }
  std::string Hear() {  // "" when it has ended
    std::string line;
    for (int c = 0; (c = fgetc(from_)) != EOF && c != '\n';) line += static_cast<char>(c);
    return line;
  }

 private:
  static void Run(const Plan& plan, int rank, int in, int out);

  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

// An engine that kills its process in the middle of a step together.
class DyingEngine final : public engine::StepEngine {
 public:
  DyingEngine(std::unique_ptr<engine::StepEngine> inner, int dies_in_step)
      : inner_(std::move(inner)), dies_in_step_(dies_in_step) {}
  const engine::EngineSpec& Spec() const override { return inner_->Spec(); }
  std::span<const engine::KvRegion> KvRegions() const override { return inner_->KvRegions(); }
  absl::StatusOr<engine::SequenceHandle> Admit(const engine::SequenceInfo& info) override {
    return inner_->Admit(info);
  }
  void Launch(engine::StepPlan plan) override {
    if (plan.group.has_value() && step_++ == dies_in_step_) {
      plan.layer_queued = [](int) { kill(getpid(), SIGKILL); };
    }
    inner_->Launch(std::move(plan));
  }
  std::optional<engine::CompletedStep> Poll() override { return inner_->Poll(); }
  std::optional<engine::StepLayers> Layers() override { return inner_->Layers(); }
  void Release(engine::SequenceHandle sequence) override { inner_->Release(sequence); }

 private:
  const std::unique_ptr<engine::StepEngine> inner_;
  const int dies_in_step_;
  int step_ = 0;
};

// The main thread of a rank's process waits for what its group tells.
class Outcome {
 public:
  void Sampled(uint64_t serial, int32_t token) {
    const std::lock_guard lock(mutex_);
    answers_[serial].push_back(token);
    changed_.notify_all();
  }
  void Ended(const absl::Status& why) {
    const std::lock_guard lock(mutex_);
    ended_ = why;
    changed_.notify_all();
  }
  // "answers: 1: 5 6 7; 2: …", or "ended: UNAVAILABLE".
  std::string Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_.has_value() || All(); });
    if (!All()) return absl::StrCat("ended: ", absl::StatusCodeToString(ended_->code()));
    std::string line = "answers:";
    for (const auto& [serial, tokens] : answers_) {
      absl::StrAppend(&line, " ", serial, ": ", absl::StrJoin(tokens, " "), ";");
    }
    return line;
  }
  void AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_.has_value(); });
  }
  // No rank runs anything, nor will.
  void Quiet() {
    const std::lock_guard lock(mutex_);
    quiet_ = true;
    changed_.notify_all();
  }
  void AwaitQuiet() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_.has_value() || quiet_; });
  }

 private:
  bool All() const {
    for (uint64_t serial = 1; serial <= kRequests; ++serial) {
      const auto answer = answers_.find(serial);
      if (answer == answers_.end()) return false;
      if (static_cast<int64_t>(answer->second.size()) < SpecOf(serial)->max_tokens) return false;
    }
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::vector<int32_t>> answers_;
  std::optional<absl::Status> ended_;
  bool quiet_ = false;
};

std::string ReadLine(int fd) {
  std::string line;
  for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

void WriteLine(int fd, const std::string& line) {
  const std::string text = line + "\n";
  SKEIN_CHECK(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

std::vector<std::string> HexWords(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(absl::HexStringToBytes(word));
  return out;
}

// As registration makes it.
std::shared_ptr<engine::GroupContext> ContextOf(engine::GroupContexts* contexts, int ranks,
                                                std::atomic<int>* made) {
  while (made->load() == 0) usleep(1000);
  std::vector<int> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto context = contexts->Take(members);
  SKEIN_CHECK_MSG(context.ok(), context.status().ToString().c_str());
  return *context;
}

GroupRank::Options OptionsOf(const Plan& plan, int rank, testing::RandomGroupPlans* planner,
                             Outcome* outcome) {
  GroupRank::Options options;
  options.epoch = 3;
  options.limits = {.answer_us = plan.stops ? 300'000 : 60'000'000, .step_us = 60'000'000};
  options.step_max = std::chrono::milliseconds(plan.stops ? 1000 : 60'000);
  options.next = [=](const scheduler::GroupBatch& batch) {
    std::optional<scheduler::FeedPlan> plan = planner->Next(batch);
    if (!plan.has_value() && planner->AllOver()) outcome->Quiet();
    return plan;
  };
  options.completed = [planner](const scheduler::StepCompleted&) { planner->Over(); };
  options.refused = [planner](const scheduler::StepRefused&) { planner->Over(); };
  options.stepped = [=](const scheduler::GroupStep& step,
                        const std::vector<scheduler::StepResult>& results) {
    if (rank == plan.victim && !plan.in_step && static_cast<int>(step.step) >= plan.at_step) {
      kill(getpid(), plan.stops ? SIGSTOP : SIGKILL);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      SKEIN_CHECK_MSG(results[i].status.ok(), results[i].status.ToString().c_str());
      if (step.sequences[i].sample) outcome->Sampled(step.sequences[i].id.serial, results[i].token);
    }
  };
  options.ended = [outcome](const absl::Status& why, const auto&) { outcome->Ended(why); };
  return options;
}

// "steps: own 1: 0, tp 2: 17": by mode and ranks.
std::string TextOf(const StepCounts& counts) {
  return absl::StrCat(
      "steps: ", absl::StrJoin(counts.Totals(), ", ", [](std::string* text, const StepTotals& one) {
        absl::StrAppend(text, one.mode, " ", one.ranks, ": ", one.steps, " of ", one.tokens);
      }));
}

void RankProcess::Run(const Plan& plan, int rank, int in, int out) {
  auto fabric = engine::MakeHostFabric({.hosts = {.tls = "self,shm"}});
  SKEIN_CHECK(fabric.ok());
  WriteLine(out, absl::BytesToHexString((*fabric)->Address()));
  const std::vector<std::string> addresses = HexWords(ReadLine(in));
  std::atomic<int> made = 0;
  engine::GroupContexts contexts(fabric->get(), fabric->get(),
                                 {.made = [&made](uint64_t, const absl::Status&) { ++made; }});
  SKEIN_CHECK(contexts.Make({1, addresses, rank}).ok());
  const bool dies = rank == plan.victim && plan.in_step;
  DyingEngine engine(*engine::EmulatedEngine::Create(EngineOptions()), dies ? plan.at_step : -1);
  scheduler::BlockPool pool(kBlocks);
  if (rank > 0) (void)pool.Allocate(3 * rank);  // each rank has other blocks, and fewer
  const scheduler::BlockCounts before = pool.Counts();
  testing::RandomGroupPlans planner(plan.ranks, kRequests);
  Outcome outcome;
  StepCounts counts;
  {
    GroupRank::Options options = OptionsOf(plan, rank, &planner, &outcome);
    options.counts = &counts;
    GroupRank group(&engine, ContextOf(&contexts, plan.ranks, &made), &pool, std::move(options));
    for (uint64_t serial = 1; serial <= kRequests; ++serial) {
      group.Offer({{serial}, SpecOf(serial), nullptr, 0, {}});
    }
    WriteLine(out, outcome.Await());
    // Members stay until the lead goes.
    if (rank == 0) ReadLine(in);
    if (rank == 0) outcome.AwaitQuiet();
    if (rank == 0) group.End(absl::CancelledError("all is answered"));
    outcome.AwaitEnd();
  }
  WriteLine(out, pool.Counts() == before ? "all blocks are free" : "blocks are lost");
  WriteLine(out, TextOf(counts));
}

std::vector<std::unique_ptr<RankProcess>> Start(const Plan& plan) {
  std::vector<std::unique_ptr<RankProcess>> ranks;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    ranks.push_back(std::make_unique<RankProcess>(plan, rank));
    addresses.push_back(ranks.back()->Hear());
  }
  for (const auto& rank : ranks) rank->Tell(absl::StrJoin(addresses, " "));
  return ranks;
}

std::string AnswersOfOne() {
  std::string line = "answers:";
  for (uint64_t serial = 1; serial <= kRequests; ++serial) {
    const scheduler::SpecPtr spec = SpecOf(serial);
    const std::vector<int32_t> tokens = engine::EmulatedContinuation(
        EngineOptions(), spec->prompt, static_cast<int>(spec->max_tokens), SamplingFrom(*spec));
    absl::StrAppend(&line, " ", serial, ": ", absl::StrJoin(tokens, " "), ";");
  }
  return line;
}

// Its steps fail when they are launched. It calls back when the test says so: long after their
// ends were polled.
class LateEngine final : public engine::StepEngine {
 public:
  const engine::EngineSpec& Spec() const override { return inner_->Spec(); }
  std::span<const engine::KvRegion> KvRegions() const override { return inner_->KvRegions(); }
  absl::StatusOr<engine::SequenceHandle> Admit(const engine::SequenceInfo& info) override {
    return inner_->Admit(info);
  }
  void Launch(engine::StepPlan plan) override {
    const std::lock_guard lock(mutex_);
    ended_ = {.number = plan.number, .status = absl::UnavailableError("test"), .results = {}};
    completed_ = std::move(plan.completed);
  }
  std::optional<engine::CompletedStep> Poll() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(ended_, std::nullopt);
  }
  std::optional<engine::StepLayers> Layers() override { return std::nullopt; }
  void Release(engine::SequenceHandle sequence) override { inner_->Release(sequence); }

  void CallBack() { std::exchange(completed_, nullptr)(/*idle=*/true); }

 private:
  const std::unique_ptr<engine::Engine> inner_ = *engine::EmulatedEngine::Create(EngineOptions());
  std::mutex mutex_;
  std::optional<engine::CompletedStep> ended_;
  std::function<void(bool idle)> completed_;
};

TEST(GroupRankTest, TheEngineMayCallBackWhenTheRankHasGone) {
  constexpr int kRanks = 2;
  engine::LocalHub hub;
  std::vector<std::unique_ptr<engine::RingFabric>> fabrics;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < kRanks; ++rank) {
    fabrics.push_back(hub.MakeFabric());
    addresses.push_back(fabrics.back()->Address());
  }
  LateEngine engines[kRanks];
  std::weak_ptr<engine::GroupContext> contexts[kRanks];
  const auto live = [&](int rank) {
    std::atomic<int> made = 0;
    const auto at = static_cast<size_t>(rank);
    engine::GroupContexts all(fabrics[at].get(), fabrics[at].get(),
                              {.made = [&made](uint64_t, const absl::Status&) { ++made; }});
    SKEIN_CHECK(all.Make({1, addresses, rank}).ok());
    auto context = ContextOf(&all, kRanks, &made);
    contexts[at] = context;
    scheduler::BlockPool pool(kBlocks);
    const Plan plan = {.ranks = kRanks};
    testing::RandomGroupPlans planner(kRanks, kRequests);
    Outcome outcome;
    GroupRank group(&engines[at], std::move(context), &pool,
                    OptionsOf(plan, rank, &planner, &outcome));
    for (uint64_t serial = 1; serial <= kRequests; ++serial) {
      group.Offer({{serial}, SpecOf(serial), nullptr, 0, {}});
    }
    outcome.AwaitEnd();
  };
  std::thread member([&] { live(1); });
  live(0);
  member.join();
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_FALSE(contexts[rank].expired()) << "its wire is to be woken";
    engines[rank].CallBack();
    EXPECT_TRUE(contexts[rank].expired());
  }
}

class Groups : public ::testing::TestWithParam<int> {};

TEST_P(Groups, EveryRankAnswersAsOneAlone) {
  const auto ranks = Start({.ranks = GetParam()});
  const std::string expected = AnswersOfOne();
  for (const auto& rank : ranks) EXPECT_EQ(rank->Hear(), expected);
  ranks[0]->Tell("end");
  for (const auto& rank : ranks) EXPECT_EQ(rank->Hear(), "all blocks are free");
  // The lead's plans have own steps, too, which each rank has none of here.
  const std::string steps = ranks[0]->Hear();
  EXPECT_EQ(steps.find("steps: own 1: 0 of 0, sp "), 0u) << steps;
  for (const engine::GroupMode mode : engine::ModesOf(GetParam())) {
    const std::string name = mode.sp == 1 ? "tp" : mode.tp == 1 ? "sp" : "sp_tp";
    EXPECT_NE(steps.find(absl::StrCat(", ", name, " ", GetParam(), ": ")), std::string::npos)
        << steps;
  }
  for (size_t rank = 1; rank < ranks.size(); ++rank) EXPECT_EQ(ranks[rank]->Hear(), steps) << rank;
}

TEST_P(Groups, WhoeverIsKilledWheneverTheOthersLeave) {
  for (int victim = 0; victim < GetParam(); ++victim) {
    for (const bool in_step : {false, true}) {
      for (const int at_step : {0, 5, 17}) {
        SCOPED_TRACE(absl::StrCat("rank ", victim, in_step ? " in" : " after", " step ", at_step));
        const auto ranks = Start({GetParam(), victim, at_step, in_step});
        for (int rank = 0; rank < GetParam(); ++rank) {
          if (rank == victim) continue;
          EXPECT_EQ(ranks[static_cast<size_t>(rank)]->Hear(), "ended: UNAVAILABLE");
          if (rank == 0) ranks[0]->Tell("end");
          EXPECT_EQ(ranks[static_cast<size_t>(rank)]->Hear(), "all blocks are free");
        }
      }
    }
  }
}

// Its death is not told: the waits' ends are. (Members wait for a plan without a bound: the
// orchestrator tells them of a lead that is stopped.)
TEST_P(Groups, ARankThatIsStoppedIsNotAwaitedForEver) {
  for (const int victim : {1, GetParam() - 1}) {
    SCOPED_TRACE(victim);
    const auto ranks = Start({GetParam(), victim, 3, false, /*stops=*/true});
    for (int rank = 0; rank < GetParam(); ++rank) {
      if (rank == victim) continue;
      const std::string end = ranks[static_cast<size_t>(rank)]->Hear();
      EXPECT_TRUE(end == "ended: UNAVAILABLE" || end == "ended: DEADLINE_EXCEEDED") << end;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfSize, Groups, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::services

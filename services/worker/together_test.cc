// Several workers' cores, engine threads and communicators (in-process) run SP plans
// together; the emulated engines' tags tell whether every block was where the cores said.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>

#include "engine/comm/local/local_fabric.h"
#include "engine/emulated/emulated_engine.h"
#include "gtest/gtest.h"
#include "proto/common.pb.h"
#include "scheduler/worker/prefill/prefill_core.h"
#include "services/worker/engine/engine_runner.h"
#include "services/worker/engine/ring_groups.h"
#include "services/worker/engine/sampling_codec.h"

namespace skein::services {
namespace {

using scheduler::AssignRequest;
using scheduler::PrefillEvent;

constexpr int kBlockTokens = 4;
constexpr int64_t kRankTokensMax = 12;  // in a step
constexpr int32_t kVocabulary = 1 << 16;

engine::EmulatedOptions Options() {
  return {.kv = {{.num_layers = 2,
                  .kv_heads = 1,
                  .head_dim = 4,
                  .block_tokens = kBlockTokens,
                  .dtype = engine::DType::kF32},
                 128},
          .vocab_size = kVocabulary,
          .max_positions = 1024};
}

// What all members have to say, handled by the test's thread.
class Inbox {
 public:
  void Push(int member, PrefillEvent event) {
    {
      std::lock_guard lock(mu_);
      events_.emplace_back(member, std::move(event));
    }
    some_.notify_one();
  }
  std::pair<int, PrefillEvent> Pop() {
    std::unique_lock lock(mu_);
    some_.wait(lock, [this] { return !events_.empty(); });
    auto event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mu_;
  std::condition_variable some_;
  std::deque<std::pair<int, PrefillEvent>> events_;
};

// A prefill worker without the network.
class Member {
 public:
  Member(int index, engine::LocalHub* hub, Inbox* inbox)
      : index_(index),
        inbox_(inbox),
        fabric_(hub->MakeFabric()),
        engine_(*engine::EmulatedEngine::Create(Options())),
        groups_(fabric_.get(), [this](const engine::Communicator&) { return why_through_host; }),
        core_(Config()),
        runner_(std::make_unique<EngineRunner>(
            engine_.get(),
            EngineRunner::Told{.ended = [this](bool) { inbox_->Push(index_, scheduler::Tick{}); }},
            EngineRunner::Records{.counts = &counts}, &groups_)) {
    Handle(scheduler::Tick{});
    Handle(scheduler::RegisterReplied{{{}, Plan().instance, 1'000'000'000'000}});
  }
  ~Member() {
    groups_.Stop();
    runner_.reset();
  }

  scheduler::PlanMember Plan() const {
    const auto id = static_cast<uint64_t>(index_ + 1);
    return {{id}, {id}, "w", fabric_->Address()};
  }

  // An event of the inbox; a Tick tells that a step has ended.
  void Take(const PrefillEvent& event) {
    for (scheduler::StepDone& done : runner_->TakeDone()) Handle(std::move(done));
    Handle(event);
  }
  // Time stands still for the core; the deadline of its steps does not matter then.
  void Handle(const PrefillEvent& event) {
    for (const scheduler::PrefillEffect& effect : core_.Handle(event, now_us_)) {
      if (const auto* run = std::get_if<scheduler::RunStep>(&effect)) {
        ++steps;
        runner_->Run(*run);
      } else if (const auto* abort = std::get_if<scheduler::AbortStep>(&effect)) {
        groups_.Abort(abort->step, absl::CancelledError("test"));
      } else if (const auto* leave = std::get_if<scheduler::BreakGroup>(&effect)) {
        groups_.Break(*leave, absl::UnavailableError("test"));
      } else if (const auto* commit = std::get_if<scheduler::CallCommit>(&effect)) {
        if (commit->request.has_token) sampled[commit->request.id] = commit->request.token;
        Handle(scheduler::CommitReplied{commit->request.id, commit->request.epoch, {}});
      } else if (const auto* grant = std::get_if<scheduler::CallOpenTransfer>(&effect)) {
        inbox_->Push(index_, scheduler::HandoffDone{grant->request.id, grant->request.epoch, {}});
        const auto& prompt = prompts.at(grant->request.id)->prompt;
        scheduler::OpenTransferReply reply;
        reply.blocks.resize((prompt.size() + kBlockTokens - 1) / kBlockTokens);
        reply.lease_us = 1'000'000'000;
        Handle(scheduler::OpenTransferReplied{grant->request.id, grant->request.epoch, reply});
      } else if (const auto* stop = std::get_if<scheduler::StopHandoff>(&effect)) {
        inbox_->Push(index_, scheduler::HandoffStopped{stop->id, stop->epoch});
      } else if (const auto* report = std::get_if<scheduler::CallReport>(&effect)) {
        for (const scheduler::EndedRequest& end : report->request.ended) {
          ended[end.id] = end.status;
          rings[end.id] = end.ring;
        }
        inbox_->Push(index_, scheduler::ReportReplied{report->request.serial, {}});
      }
    }
    const absl::Status invariants = core_.CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
  }

  std::map<scheduler::RequestId, scheduler::SpecPtr> prompts;
  std::map<scheduler::RequestId, int32_t> sampled;
  std::map<scheduler::RequestId, absl::Status> ended;
  std::map<scheduler::RequestId, std::optional<scheduler::RingPath>> rings;  // as told at the end
  std::optional<std::string> why_through_host;  // of its groups; set before any step
  int steps = 0;
  StepCounts counts;

 private:
  scheduler::PrefillConfig Config() const {
    scheduler::PrefillConfig config;
    config.membership.identity.incarnation = {static_cast<uint64_t>(index_ + 1)};
    config.membership.identity.shape.block_tokens = kBlockTokens;
    config.membership.identity.total_blocks = Options().kv.num_blocks;
    config.membership.report_spacing_us = 0;
    config.membership.report_spacing_per_request_us = 0;
    config.batch = {.max_batch_tokens = kRankTokensMax};
    config.request_deadline_us = 1'000'000'000'000;
    return config;
  }

  const int index_;
  Inbox* const inbox_;
  const std::unique_ptr<engine::RingFabric> fabric_;
  const std::unique_ptr<engine::EmulatedEngine> engine_;
  RingGroups groups_;
  scheduler::PrefillCore core_;
  const int64_t now_us_ = std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::steady_clock::now().time_since_epoch())
                              .count();
  std::unique_ptr<EngineRunner> runner_;
};

class TogetherTest : public ::testing::Test {
 protected:
  TogetherTest() {
    for (int i = 0; i < 4; ++i) members_.push_back(std::make_unique<Member>(i, &hub_, &inbox_));
  }

  // A random prompt, assigned in random chunks to growing random sets, and started everywhere.
  scheduler::RequestId Submit(const std::function<void(scheduler::RequestSpec&)>& edit = nullptr) {
    auto spec = std::make_shared<scheduler::RequestSpec>();
    spec->id = {1, ++serial_};
    v1::SamplingParams sampling;
    sampling.set_top_p(1);
    sampling.set_repetition_penalty(1);
    spec->sampling = sampling.SerializeAsString();
    for (int64_t i = Between(1, 150); i > 0; --i) {
      spec->prompt.push_back(static_cast<int32_t>(Between(0, 1000)));
    }
    spec->max_tokens = 1;
    if (edit) edit(*spec);
    AssignRequest assign{.spec = spec, .epoch = {serial_}, .sequence = {serial_}};
    std::vector<int> order(members_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    const std::vector<int> used = AddChunks(order, &assign);
    for (int member : used) {
      members_[member]->prompts[spec->id] = spec;
      members_[member]->Handle(scheduler::AssignCalled{{++calls_}, assign});
    }
    for (int member : used) {
      members_[member]->Handle(
          scheduler::StartCalled{{spec->id, assign.epoch, {assign.epoch, {9}, "d"}}});
    }
    members_of_[spec->id] = used;
    chunks_ = assign.chunks.size();
    specs_[spec->id] = spec;
    return spec->id;
  }

  std::vector<int> AddChunks(const std::vector<int>& order, AssignRequest* assign) {
    int64_t left = scheduler::PromptTokens(*assign->spec);
    while (left > 0) {
      const auto had = static_cast<int64_t>(assign->members.size());
      const int64_t size = Between(std::max<int64_t>(had, 1), static_cast<int64_t>(order.size()));
      for (int64_t i = had; i < size; ++i) {
        assign->members.push_back(members_[order[i]]->Plan());
      }
      scheduler::PlanChunk chunk{.tokens = std::min(left, kBlockTokens * Between(1, 20))};
      for (uint32_t i = 0; i < size; ++i) chunk.members.push_back(i);
      left -= chunk.tokens;
      assign->chunks.push_back(chunk);
    }
    return {order.begin(), order.begin() + static_cast<int64_t>(assign->members.size())};
  }

  bool EndedAtAll(scheduler::RequestId id) const {
    const auto& used = members_of_.at(id);
    return std::all_of(used.begin(), used.end(),
                       [&](int member) { return members_[member]->ended.count(id) > 0; });
  }
  void RunUntilEnded(scheduler::RequestId id) {
    while (!EndedAtAll(id)) {
      const auto [member, event] = inbox_.Pop();
      members_[member]->Take(event);
    }
  }
  void ExpectRight(scheduler::RequestId id) {
    const scheduler::RequestSpec& spec = *specs_.at(id);
    std::vector<int32_t> sampled;
    for (int member : members_of_.at(id)) {
      EXPECT_TRUE(members_[member]->ended.at(id).ok()) << members_[member]->ended.at(id);
      const auto it = members_[member]->sampled.find(id);
      if (it != members_[member]->sampled.end()) sampled.push_back(it->second);
    }
    EXPECT_EQ(sampled, engine::EmulatedContinuation(Options(), spec.prompt, 1, SamplingFrom(spec)));
  }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  engine::LocalHub hub_;
  Inbox inbox_;
  std::mt19937_64 random_{7};
  std::vector<std::unique_ptr<Member>> members_;
  std::map<scheduler::RequestId, std::vector<int>> members_of_;
  std::map<scheduler::RequestId, scheduler::SpecPtr> specs_;
  size_t chunks_ = 0;  // of the last plan
  uint64_t serial_ = 0;
  uint64_t calls_ = 0;
};

TEST_F(TogetherTest, RandomPlansSampleWhatOneInstanceWould) {
  std::vector<scheduler::RequestId> ids;
  for (int i = 0; i < 12; ++i) ids.push_back(Submit());
  for (scheduler::RequestId id : ids) RunUntilEnded(id);
  for (scheduler::RequestId id : ids) ExpectRight(id);

  // Each step was counted, at each of the instances that ran it together; their shares are the
  // prompts.
  std::map<int, uint64_t> rings;  // by ranks
  uint64_t tokens = 0;
  for (const auto& member : members_) {
    uint64_t counted = 0;
    for (const StepTotals& one : member->counts.Totals()) {
      counted += one.steps;
      tokens += one.tokens;
      if (one.mode == "ring") rings[one.ranks] += one.steps;
    }
    EXPECT_EQ(counted, static_cast<uint64_t>(member->steps));
  }
  for (const auto& [ranks, steps] : rings) EXPECT_EQ(steps % ranks, 0u) << ranks;
  for (int ranks = 2; ranks <= 4; ++ranks) EXPECT_GT(rings[ranks], 0u) << ranks;
  uint64_t prompts = 0;
  for (const auto& [id, spec] : specs_) prompts += spec->prompt.size();
  EXPECT_EQ(tokens, prompts);
}

TEST_F(TogetherTest, StepsThatFailAreNotCounted) {
  const auto refused =
      Submit([](scheduler::RequestSpec& spec) { spec.prompt.front() = kVocabulary; });
  RunUntilEnded(refused);
  int steps = 0;
  for (const auto& member : members_) {
    steps += member->steps;
    EXPECT_EQ(member->counts.Totals(), (std::vector<StepTotals>{{"own", 1, 0, 0}}));
  }
  EXPECT_GT(steps, 0);
}

// What the engines refuse ends at all members of the step, and those who would have joined in a
// later chunk find its group broken; what cannot be sampled ends at the one that samples. Plans
// beside it, some of the same members, never hear of it.
TEST_F(TogetherTest, APlanThatFailsHarmsNoOther) {
  std::vector<scheduler::RequestId> good, refused, unsampled;
  for (int i = 0; i < 6; ++i) {
    good.push_back(Submit());
    refused.push_back(
        Submit([](scheduler::RequestSpec& spec) { spec.prompt.back() = kVocabulary; }));
    good.push_back(Submit());
    unsampled.push_back(Submit([](scheduler::RequestSpec& spec) {
      spec.stop_token_ids.resize(kVocabulary);
      std::iota(spec.stop_token_ids.begin(), spec.stop_token_ids.end(), 0);
      spec.min_tokens = 1;
    }));
  }
  for (scheduler::RequestId id : good) RunUntilEnded(id);
  for (scheduler::RequestId id : good) ExpectRight(id);
  for (scheduler::RequestId id : refused) {
    RunUntilEnded(id);
    int named = 0;
    for (int member : members_of_.at(id)) {
      const absl::Status& end = members_[member]->ended.at(id);
      named += absl::IsInvalidArgument(end) ? 1 : 0;
      EXPECT_TRUE(absl::IsInvalidArgument(end) || absl::IsUnavailable(end)) << end;
    }
    EXPECT_GT(named, 0);
  }
  for (scheduler::RequestId id : unsampled) {
    RunUntilEnded(id);
    int failed = 0;
    for (int member : members_of_.at(id)) {
      const absl::Status& end = members_[member]->ended.at(id);
      EXPECT_TRUE(end.ok() || absl::IsInvalidArgument(end)) << end;
      failed += end.ok() ? 0 : 1;
    }
    EXPECT_EQ(failed, 1);
  }
}

TEST_F(TogetherTest, ACancelAtAnyMomentFreesAllMembers) {
  std::vector<scheduler::RequestId> ids;
  for (int i = 0; i < 24; ++i) {
    ids.push_back(Submit());
    const scheduler::RequestId victim = ids[Between(0, i)];
    for (int64_t events = Between(0, 6); events > 0 && !EndedAtAll(ids.back()); --events) {
      const auto [member, event] = inbox_.Pop();
      members_[member]->Take(event);
    }
    if (i % 2 == 0) continue;
    for (int member : members_of_.at(victim)) {
      members_[member]->Handle(scheduler::CancelCalled{{victim, {victim.serial}, "test"}});
    }
  }
  for (scheduler::RequestId id : ids) RunUntilEnded(id);
  for (scheduler::RequestId id : ids) {
    bool all_ok = true;
    for (int member : members_of_.at(id)) all_ok = all_ok && members_[member]->ended.at(id).ok();
    if (all_ok) ExpectRight(id);
  }
}

TEST_F(TogetherTest, AWorkerThatStopsIsNotWaitedFor) {
  scheduler::RequestId id = Submit();
  // Of one chunk, whose group all know, and more than one piece, so that nobody has begun the last
  // one when the worker stops.
  while (members_of_.at(id).size() < 3 || chunks_ != 1 ||
         specs_.at(id)->prompt.size() <= members_.size() * kRankTokensMax) {
    RunUntilEnded(id);
    id = Submit();
  }
  std::vector<int>& used = members_of_.at(id);
  members_[used[1]].reset();
  used.erase(used.begin() + 1);
  while (!EndedAtAll(id)) {
    const auto [member, event] = inbox_.Pop();
    if (members_[member] != nullptr) members_[member]->Take(event);
  }
  for (int member : used) {
    EXPECT_EQ(members_[member]->ended.at(id).code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(TogetherTest, EachMemberTellsHowItsExchangesWent) {
  members_[0]->why_through_host = "ipc: it may not";
  int alone = 0;
  int slow = 0;
  for (int round = 0; round < 20 || alone == 0 || slow == 0; ++round) {
    const scheduler::RequestId id = Submit();
    RunUntilEnded(id);
    const std::vector<int>& used = members_of_.at(id);
    for (const int member : used) {
      const std::optional<scheduler::RingPath>& ring = members_[member]->rings.at(id);
      if (used.size() == 1) {
        EXPECT_EQ(ring, std::nullopt);
        ++alone;
      } else if (member == 0) {
        EXPECT_EQ(ring, (scheduler::RingPath{true, "ipc: it may not"}));
        ++slow;
      } else {
        EXPECT_EQ(ring, scheduler::RingPath{});
      }
    }
  }
}

TEST_F(TogetherTest, OneMemberThatGivesUpEndsThePlanForAll) {
  for (int round = 0; round < 8; ++round) {
    const scheduler::RequestId id = Submit();
    const std::vector<int>& used = members_of_.at(id);
    const int quitter = used[Between(0, static_cast<int64_t>(used.size()) - 1)];
    members_[quitter]->Handle(scheduler::CancelCalled{{id, {id.serial}, "test"}});
    RunUntilEnded(id);  // nobody waits for its deadline
  }
}

TEST(RingGroupsTest, WithoutAFabricAStepWithOthersIsUnavailable) {
  RingGroups groups(nullptr);
  scheduler::RingPart part;
  part.comm_addresses = {"a", "b"};
  EXPECT_EQ(groups.Enter(1, part).status().code(), absl::StatusCode::kUnavailable);
  part.comm_addresses = {"a"};
  const auto alone = groups.Enter(2, part);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->comm, nullptr);
  groups.Leave(absl::OkStatus());
  groups.Abort(3, absl::CancelledError("test"));
  EXPECT_EQ(groups.Enter(3, part).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace skein::services

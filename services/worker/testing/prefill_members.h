// Prefill-workers without the network: their cores, engine threads and communicators (in-process)
// run plans together, as a test's thread drives them.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/stepping/step_engine.h"
#include "gtest/gtest.h"
#include "proto/common.pb.h"
#include "scheduler/vocabulary/handoff_block.h"
#include "scheduler/worker/prefill/prefill_core.h"
#include "services/worker/engine/engine_runner.h"
#include "services/worker/engine/ring_groups.h"
#include "services/worker/engine/step_counts.h"

namespace skein::services::testing {

inline constexpr int64_t kRankTokensMax = 12;  // in a step

// By the prompt's block: its bytes, layer by layer.
using PromptKv = std::map<int64_t, std::vector<std::byte>>;

// What all members have to say, handled by the test's thread.
class PrefillInbox {
 public:
  void Push(int member, scheduler::PrefillEvent event) {
    {
      std::lock_guard lock(mu_);
      events_.emplace_back(member, std::move(event));
    }
    some_.notify_one();
  }
  std::pair<int, scheduler::PrefillEvent> Pop() {
    std::unique_lock lock(mu_);
    some_.wait(lock, [this] { return !events_.empty(); });
    auto event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mu_;
  std::condition_variable some_;
  std::deque<std::pair<int, scheduler::PrefillEvent>> events_;
};

// A prefill worker without the network.
class PrefillMember {
 public:
  PrefillMember(int index, std::unique_ptr<engine::StepEngine> engine, engine::LocalHub* hub,
                PrefillInbox* inbox)
      : index_(index),
        inbox_(inbox),
        fabric_(hub->MakeFabric()),
        engine_(std::move(engine)),
        groups_(fabric_.get(), [this](const engine::Communicator&) { return why_through_host; }),
        core_(Config()),
        runner_(std::make_unique<EngineRunner>(
            engine_.get(),
            EngineRunner::Told{.ended = [this](bool) { inbox_->Push(index_, scheduler::Tick{}); }},
            EngineRunner::Records{.counts = &counts}, &groups_)) {
    Handle(scheduler::Tick{});
    Handle(scheduler::RegisterReplied{{{}, Plan().instance, 1'000'000'000'000}});
  }
  ~PrefillMember() {
    groups_.Stop();
    runner_.reset();
  }

  scheduler::PlanMember Plan() const {
    const auto id = static_cast<uint64_t>(index_ + 1);
    return {{id}, {id}, "w", fabric_->Address()};
  }

  // An event of the inbox; a Tick tells that a step has ended.
  void Take(const scheduler::PrefillEvent& event) {
    for (scheduler::StepDone& done : runner_->TakeDone()) Handle(std::move(done));
    Handle(event);
  }
  // Time stands still for the core; the deadline of its steps does not matter then.
  void Handle(const scheduler::PrefillEvent& event) {
    for (const scheduler::PrefillEffect& effect : core_.Handle(event, now_us_)) {
      if (const auto* run = std::get_if<scheduler::RunStep>(&effect)) {
        ++steps;
        runner_->Run(*run);
      } else if (const auto* abort = std::get_if<scheduler::AbortStep>(&effect)) {
        groups_.Abort(abort->step, absl::CancelledError("test"));
      } else if (const auto* leave = std::get_if<scheduler::BreakGroup>(&effect)) {
        groups_.Break(*leave, absl::UnavailableError("test"));
      } else if (const auto* open = std::get_if<scheduler::OpenHandoff>(&effect)) {
        puts_[open->id] = open->blocks;
      } else if (const auto* more = std::get_if<scheduler::AddToHandoff>(&effect)) {
        puts_[more->id].insert(puts_[more->id].end(), more->blocks.begin(), more->blocks.end());
      } else if (const auto* commit = std::get_if<scheduler::CallCommit>(&effect)) {
        KeepKv(commit->request.id);
        if (commit->request.has_token) sampled[commit->request.id] = commit->request.token;
        Handle(scheduler::CommitReplied{commit->request.id, commit->request.epoch, {}});
      } else if (const auto* grant = std::get_if<scheduler::CallOpenTransfer>(&effect)) {
        inbox_->Push(index_, scheduler::HandoffDone{grant->request.id, grant->request.epoch, {}});
        const int64_t tokens = scheduler::PromptTokens(*prompts.at(grant->request.id));
        const int64_t block_tokens = engine_->Spec().kv.block_tokens;
        scheduler::OpenTransferReply reply;
        reply.blocks.resize(static_cast<size_t>((tokens + block_tokens - 1) / block_tokens));
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
  // What it committed: by the prompt's block, all layers of it.
  std::map<scheduler::RequestId, PromptKv> kv;
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
    config.membership.identity.shape.block_tokens = engine_->Spec().kv.block_tokens;
    config.membership.identity.total_blocks = engine_->Spec().kv.num_blocks;
    config.membership.report_spacing_us = 0;
    config.membership.report_spacing_per_request_us = 0;
    config.batch = {.max_batch_tokens = kRankTokensMax};
    config.request_deadline_us = 1'000'000'000'000;
    return config;
  }

  void KeepKv(scheduler::RequestId id) {
    const auto bytes = static_cast<size_t>(engine_->Spec().kv.BlockBytes());
    for (const HandoffBlock& put : puts_[id]) {
      std::vector<std::byte>& block = kv[id][put.global];
      for (const engine::KvRegion& region : engine_->KvRegions()) {
        const auto* at = static_cast<const std::byte*>(region.base) +
                         static_cast<size_t>(put.local.value) * bytes;
        block.insert(block.end(), at, at + bytes);
      }
    }
  }

  const int index_;
  PrefillInbox* const inbox_;
  const std::unique_ptr<engine::RingFabric> fabric_;
  const std::unique_ptr<engine::StepEngine> engine_;
  std::map<scheduler::RequestId, std::vector<HandoffBlock>> puts_;
  RingGroups groups_;
  scheduler::PrefillCore core_;
  const int64_t now_us_ = std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::steady_clock::now().time_since_epoch())
                              .count();
  std::unique_ptr<EngineRunner> runner_;
};

// A pool of them, and random plans. One thread.
class PrefillMembers {
 public:
  using MakeEngine = std::function<std::unique_ptr<engine::StepEngine>()>;

  PrefillMembers(int count, int64_t block_tokens, const MakeEngine& make_engine)
      : block_tokens_(block_tokens) {
    for (int i = 0; i < count; ++i) {
      members_.push_back(std::make_unique<PrefillMember>(i, make_engine(), &hub_, &inbox_));
    }
  }

  // A random prompt, assigned in random chunks with random tp to growing random sets of at most
  // `members_max` members, and started everywhere.
  scheduler::RequestId Submit(const std::function<void(scheduler::RequestSpec&)>& edit = nullptr,
                              size_t members_max = std::numeric_limits<size_t>::max()) {
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
    scheduler::AssignRequest assign{.spec = spec, .epoch = {serial_}, .sequence = {serial_}};
    std::vector<int> order(members_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(std::min(order.size(), members_max));
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

  std::vector<int> AddChunks(const std::vector<int>& order, scheduler::AssignRequest* assign) {
    int64_t left = scheduler::PromptTokens(*assign->spec);
    while (left > 0) {
      const auto had = static_cast<int64_t>(assign->members.size());
      const int64_t size = Between(std::max<int64_t>(had, 1), static_cast<int64_t>(order.size()));
      for (int64_t i = had; i < size; ++i) {
        assign->members.push_back(members_[order[i]]->Plan());
      }
      scheduler::PlanChunk chunk{.tokens = std::min(left, block_tokens_ * Between(1, 20))};
      for (uint32_t i = 0; i < size; ++i) chunk.members.push_back(i);
      while (size % (2 * chunk.tp) == 0 && Between(0, 1) > 0) chunk.tp *= 2;
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
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

 protected:
  const int64_t block_tokens_;
  engine::LocalHub hub_;
  PrefillInbox inbox_;
  std::mt19937_64 random_{7};
  std::vector<std::unique_ptr<PrefillMember>> members_;
  std::map<scheduler::RequestId, std::vector<int>> members_of_;
  std::map<scheduler::RequestId, scheduler::SpecPtr> specs_;
  size_t chunks_ = 0;  // of the last plan
  uint64_t serial_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace skein::services::testing

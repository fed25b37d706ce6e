// An engine that a test watches and holds: it notes what steps have of their sequences' KV, and
// which steps of a bound group it runs, in what mode and with how much CPU time; and it keeps steps
// back until the test lets them go.
#pragma once

#include <time.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "engine/parallel/group_part.h"
#include "engine/parallel/shard_layout.h"
#include "engine/stepping/step_engine.h"
#include "scheduler/vocabulary/check.h"

namespace skein::services::testing {

// What a step runs of one sequence.
struct SeenSequence {
  int64_t admitted = 0;  // sequences that this engine had admitted before it
  int64_t position = 0, count = 0;
  int64_t blocks = 0;  // its table's
  bool sample = false;
  uint64_t token_index = 0;
  bool operator==(const SeenSequence&) const = default;
};
// A step of a bound group.
struct SeenGroupStep {
  engine::GroupMode mode;  // once it has begun
  std::vector<SeenSequence> sequences;
  bool operator==(const SeenGroupStep&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const SeenGroupStep& step) {
  out << "(sp " << step.mode.sp << ", tp " << step.mode.tp << "):";
  for (const SeenSequence& one : step.sequences) {
    out << " " << one.admitted << " at " << one.position << " + " << one.count << " in "
        << one.blocks << " blocks" << (one.sample ? ", samples " : ", no ") << one.token_index
        << ";";
  }
  return out;
}

class WatchedEngine final : public engine::StepEngine {
 public:
  // What the sequences of a step have of KV at its end.
  struct StepKv {
    int64_t blocks = 0;
    int64_t blocks_alone = 0;  // that one instance would need for these sequences
    int64_t sequences = 0;
  };
  // A step to hold at.
  struct HoldAt {
    bool group = true;      // a step of the group; else an own one
    int64_t sequences = 0;  // in it, at least
    bool decodes = false;   // each runs one token
  };

  explicit WatchedEngine(std::unique_ptr<engine::StepEngine> inner) : inner_(std::move(inner)) {}

  const engine::EngineSpec& Spec() const override { return inner_->Spec(); }
  std::span<const engine::KvRegion> KvRegions() const override { return inner_->KvRegions(); }
  absl::StatusOr<engine::SequenceHandle> Admit(const engine::SequenceInfo& info) override {
    absl::StatusOr<engine::SequenceHandle> admitted = inner_->Admit(info);
    const std::lock_guard lock(mutex_);
    if (admitted.ok()) admitted_.emplace(*admitted, static_cast<int64_t>(admitted_.size()));
    return admitted;
  }
  void Launch(engine::StepPlan plan) override {
    const std::lock_guard lock(mutex_);
    if (plan.group.has_value()) Watch(&plan);
    HoldIfAt(plan);
    if (!holding_) return inner_->Launch(std::move(plan));
    held_.push_back(std::move(plan));
    changed_.notify_all();
  }
  std::optional<engine::CompletedStep> Poll() override { return inner_->Poll(); }
  std::optional<engine::StepLayers> Layers() override { return inner_->Layers(); }
  void Release(engine::SequenceHandle sequence) override { inner_->Release(sequence); }

  // Steps that are launched from now on wait for Go.
  void Hold() {
    const std::lock_guard lock(mutex_);
    holding_ = true;
  }
  // The next step of this kind, and those behind it, wait for Go.
  void HoldAtStep(const HoldAt& at) {
    const std::lock_guard lock(mutex_);
    hold_at_ = at;
  }
  // Until the step of HoldAtStep is held: its KV. Within a minute, else the process ends.
  StepKv AwaitHeld() {
    std::unique_lock lock(mutex_);
    const bool held = changed_.wait_for(lock, std::chrono::minutes(1),
                                        [this] { return !hold_at_.has_value() && !held_.empty(); });
    SKEIN_CHECK_MSG(held, "no step of that kind came");
    return held_at_;
  }
  void Go() {
    const std::lock_guard lock(mutex_);
    holding_ = false;
    for (; !held_.empty(); held_.pop_front()) inner_->Launch(std::move(held_.front()));
  }

  // All steps of groups that were launched, in their order.
  std::vector<SeenGroupStep> GroupSteps() {
    const std::lock_guard lock(mutex_);
    return {group_steps_.begin(), group_steps_.end()};
  }
  // The CPU time, in seconds, of the thread that runs steps, in those of groups that have ended.
  double GroupCpuSeconds() {
    const std::lock_guard lock(mutex_);
    return group_cpu_s_;
  }

 private:
  static double CpuSecondsOfThisThread() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  // Notes the step; where it begins and ends, its mode and CPU time.
  void Watch(engine::StepPlan* plan) {
    SeenGroupStep& seen = group_steps_.emplace_back();  // a deque: it stays where it is
    for (const engine::PlannedSequence& one : plan->sequences) {
      seen.sequences.push_back({.admitted = admitted_.at(one.sequence),
                                .position = one.position,
                                .count = one.count,
                                .blocks = TableOf(one),
                                .sample = one.sample,
                                .token_index = one.token_index});
    }
    plan->group->enter = [this, &seen, enter = std::move(plan->group->enter)] {
      began_s_ = CpuSecondsOfThisThread();
      absl::StatusOr<engine::GroupPart> part = enter();
      const std::lock_guard lock(mutex_);
      if (part.ok()) seen.mode = part->mode;
      return part;
    };
    plan->group->leave = [this, leave = std::move(plan->group->leave)](const absl::Status& status) {
      leave(status);
      const std::lock_guard lock(mutex_);
      group_cpu_s_ += CpuSecondsOfThisThread() - began_s_;
    };
  }

  void HoldIfAt(const engine::StepPlan& plan) {
    if (!hold_at_.has_value() || hold_at_->group != plan.group.has_value()) return;
    if (static_cast<int64_t>(plan.sequences.size()) < hold_at_->sequences) return;
    const int64_t tokens_per_block = Spec().kv.block_tokens;
    held_at_ = {};
    for (const engine::PlannedSequence& one : plan.sequences) {
      if (hold_at_->decodes && one.count > 1) return;
      held_at_.blocks += TableOf(one);
      held_at_.blocks_alone += (one.position + one.count + tokens_per_block - 1) / tokens_per_block;
      ++held_at_.sequences;
    }
    hold_at_.reset();
    holding_ = true;
  }
  static int64_t TableOf(const engine::PlannedSequence& sequence) {
    return sequence.kept_blocks + static_cast<int64_t>(sequence.blocks.size());
  }

  const std::unique_ptr<engine::StepEngine> inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holding_ = false;
  std::optional<HoldAt> hold_at_;
  StepKv held_at_;
  std::deque<engine::StepPlan> held_;
  std::map<engine::SequenceHandle, int64_t> admitted_;
  std::deque<SeenGroupStep> group_steps_;
  double began_s_ = 0;  // of the thread that runs steps alone
  double group_cpu_s_ = 0;
};

}  // namespace skein::services::testing

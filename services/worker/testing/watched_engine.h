// An engine that a test watches and holds: it notes what the steps of a bound group have of their
// sequences' KV, and keeps steps back until the test lets them go.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "engine/stepping/step_engine.h"
#include "scheduler/vocabulary/check.h"

namespace skein::services::testing {

class WatchedEngine final : public engine::StepEngine {
 public:
  // What the sequences of a group's step have of KV at its end.
  struct GroupStepKv {
    int64_t blocks = 0;
    int64_t blocks_alone = 0;  // that one instance would need for these sequences
    int64_t sequences = 0;
  };

  explicit WatchedEngine(std::unique_ptr<engine::StepEngine> inner) : inner_(std::move(inner)) {}

  const engine::EngineSpec& Spec() const override { return inner_->Spec(); }
  std::span<const engine::KvRegion> KvRegions() const override { return inner_->KvRegions(); }
  absl::StatusOr<engine::SequenceHandle> Admit(const engine::SequenceInfo& info) override {
    return inner_->Admit(info);
  }
  void Launch(engine::StepPlan plan) override {
    const std::lock_guard lock(mutex_);
    if (plan.group.has_value()) Note(plan);
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
  // The next step of a group with so many sequences, and those behind it, wait for Go.
  void HoldAtGroupStep(int64_t sequences) {
    const std::lock_guard lock(mutex_);
    hold_at_ = sequences;
  }
  // Until the step of HoldAtGroupStep is held: its KV. Within a minute, else the process ends.
  GroupStepKv AwaitHeld() {
    std::unique_lock lock(mutex_);
    const bool held = changed_.wait_for(lock, std::chrono::minutes(1),
                                        [this] { return hold_at_ == 0 && !held_.empty(); });
    SKEIN_CHECK_MSG(held, "no step of a group has so many sequences");
    return last_;
  }
  void Go() {
    const std::lock_guard lock(mutex_);
    holding_ = false;
    for (; !held_.empty(); held_.pop_front()) inner_->Launch(std::move(held_.front()));
  }

 private:
  void Note(const engine::StepPlan& plan) {
    last_ = {};
    const int64_t tokens_per_block = Spec().kv.block_tokens;
    for (const engine::PlannedSequence& one : plan.sequences) {
      last_.blocks += one.kept_blocks + static_cast<int64_t>(one.blocks.size());
      last_.blocks_alone += (one.position + one.count + tokens_per_block - 1) / tokens_per_block;
      ++last_.sequences;
    }
    if (hold_at_ == 0 || last_.sequences < hold_at_) return;
    hold_at_ = 0;
    holding_ = true;
  }

  const std::unique_ptr<engine::StepEngine> inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holding_ = false;
  int64_t hold_at_ = 0;  // 0: at none
  GroupStepKv last_;
  std::deque<engine::StepPlan> held_;
};

}  // namespace skein::services::testing

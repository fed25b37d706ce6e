// ThreadedEngine: a StepEngine over a synchronous Engine, whose steps run on a thread of its own. A
// step that was launched while another one ran begins at once when that has ended: between the two
// this thread does nothing but hand over the results.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "engine/stepping/inline_engine.h"

namespace skein::engine {

class ThreadedEngine : public StepEngine {
 public:
  // `idle`: no step was launched behind the completed one.
  using Completed = std::function<void(bool idle)>;

  // `engine` outlives this. `completed` is called on the engine's thread whenever Poll has a
  // completed step. It may call Poll and Launch; the next step waits for it.
  ThreadedEngine(Engine* engine, Completed completed);
  ~ThreadedEngine() override;  // waits for the step in flight

  const EngineSpec& Spec() const override { return inline_.Spec(); }
  std::span<const KvRegion> KvRegions() const override { return inline_.KvRegions(); }
  absl::StatusOr<SequenceHandle> Admit(const SequenceInfo& info) override {
    return inline_.Admit(info);
  }
  void Launch(StepPlan plan) override;
  std::optional<CompletedStep> Poll() override;
  std::optional<StepLayers> Layers() override;
  void Release(SequenceHandle sequence) override { inline_.Release(sequence); }

 private:
  void Loop();

  InlineEngine inline_;  // thread_ calls only its Run; the caller's thread calls the rest
  const Completed notify_;

  std::mutex mu_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<PreparedStep>> waiting_;
  std::deque<CompletedStep> completed_;
  uint64_t running_number_ = 0;
  std::shared_ptr<StepProgress> running_;  // null: no step runs
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace skein::engine

// What the ranks of one step of a bound group tell each other, on one thread. The engines' calls
// block in a real group. Here each rank's step runs twice: first it records what this rank tells,
// and gets zeros; when all ranks have recorded, it runs again and gets what they told. That works
// because an emulated step writes the same whenever it runs, and tells nothing that depends on what
// it was told (engine/emulated/group_run.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/engine.h"

namespace skein::sim {

class GroupTalk {
 public:
  // `run` runs a rank's step, on a TalkingEngine, with Of(rank) as its communicator.
  GroupTalk(int ranks, std::function<void(int rank)> run);
  ~GroupTalk();

  void RunAll() { ReachFrom(0); }
  engine::Communicator* Of(int rank);

 private:
  friend class TalkingEngine;
  class Talker;
  struct Call {
    uint64_t tag = 0;
    std::vector<std::byte> sent;
  };

  // The ranks from this one on have recorded their steps, or had none to run.
  void ReachFrom(int rank);

  const std::function<void(int rank)> run_;
  int reached_ = 0;                       // ranks
  std::vector<std::vector<Call>> calls_;  // by rank
  std::vector<std::unique_ptr<Talker>> ranks_;
};

// Another engine, whose steps run in Poll and whose steps of a group talk by GroupTalk.
class TalkingEngine final : public engine::Engine {
 public:
  // `engine` outlives this, and runs nothing else.
  explicit TalkingEngine(engine::Engine* engine)
      : Engine(engine::StepsRun::kInPoll), engine_(*engine) {}

  const engine::EngineSpec& Spec() const override { return engine_.Spec(); }
  std::span<const engine::KvRegion> KvRegions() const override { return engine_.KvRegions(); }
  absl::Status Step(std::span<const engine::SequenceStep> sequences, engine::StepProgress* progress,
                    std::vector<engine::SequenceResult>* results) override {
    return engine_.Step(sequences, progress, results);
  }
  // REQUIRES: `part.all` is of a GroupTalk.
  absl::Status StepTogether(const engine::GroupPart& part,
                            std::span<const engine::SequenceStep> sequences,
                            engine::StepProgress* progress,
                            std::vector<engine::SequenceResult>* results) override;

 private:
  engine::Engine& engine_;
};

}  // namespace skein::sim

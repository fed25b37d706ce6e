// Engine: what the engines of this folder have in common. Towards everybody else each of them is a
// StepEngine (stepping/step_engine.h): launched steps run one after the other on a thread of the
// engine. Inside engine/ an engine is what runs one step, on the calling thread: Step and
// StepTogether, which each engine has its own of.
//
// Implementations: model (a checkpoint on a Device through Ops), group (the same, also as a rank of
// a group), emulated (content tags in its KV; its steps take a profile's time); decorators of
// tests.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/parallel/group_part.h"
#include "engine/step.h"
#include "engine/step_progress.h"
#include "engine/stepping/sequence_table.h"
#include "engine/stepping/step_engine.h"

namespace skein::engine {

// Which thread runs launched steps.
enum class StepsRun {
  kOnOwnThread,  // which the first Launch makes
  kInPoll,       // Poll runs the first one that is launched: simulations, whose time stands still
};

class Engine : public StepEngine {
 public:
  explicit Engine(StepsRun steps_run = StepsRun::kOnOwnThread) : steps_run_(steps_run) {}
  // REQUIRES: no step is in flight. Where steps run in Poll, launched steps that Poll has not begun
  // are dropped instead.
  ~Engine() override;

  absl::StatusOr<SequenceHandle> Admit(const SequenceInfo& info) final;
  void Launch(StepPlan plan) final;
  std::optional<CompletedStep> Poll() final;
  std::optional<StepLayers> Layers() final;
  void Release(SequenceHandle sequence) final;

  // The rest is for engine/, its benches, and tests. One thread at a time runs steps.

  // Runs all sequences in one forward pass; results[i] belongs to sequences[i] (resized by the
  // engine). A sequence that fails does so alone, with a status of its own (SequenceResult): the
  // others get bit for bit what they would have got without it. `progress` tells meanwhile how many
  // layers' KV of the sequences that run is written, so that a handoff can overlap with later
  // layers; null: nobody asks. When Step returns, whatever it returns, the device is done with it:
  // its blocks may go to others.
  //
  // Errors are those of the whole step; `results` then mean nothing. INVALID_ARGUMENT: no
  // sequences, too many tokens together, or a ring sequence beside others; nothing was run. A
  // ring step ends with UNAVAILABLE or DEADLINE_EXCEEDED when a collective failed: what it
  // wrote is undefined (blocks of `tokens` and `receive` only), its communicators are broken, the
  // engine is as good as before. Other errors: the device failed, the engine is unusable.
  //
  // The messages of a ring step are tagged with a digest of what all ranks must have been given
  // alike (step_digest.h). Ranks that were given different ring steps fail at the first exchange:
  // INVALID_ARGUMENT where it was found, UNAVAILABLE at the others. Where each waits for a message
  // that none sends, they fail at the deadline: DEADLINE_EXCEEDED at a rank that sees it first,
  // UNAVAILABLE at the others. A rank that refuses its part has INVALID_ARGUMENT in `results`, runs
  // nothing and breaks the communicators, so that the step ends with UNAVAILABLE and this reason at
  // the others. (A rank that was given no communicator cannot tell the others.) At its end the
  // ranks meet, on both communicators: a step is OK at one rank only after every rank has run all
  // its layers, so an Abort or a failure before that, at any rank, fails it at all. Only what
  // happens in that last meeting (an Abort, a death, a deadline) may fail it at some ranks while it
  // is OK at others. What follows the meeting, sampling and logprobs, concerns the rank alone.
  virtual absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                            std::vector<SequenceResult>* results) = 0;

  // A step of all ranks of part.all together, which may follow and precede any other: every rank is
  // given the same sequences (block tables are its own), all of layout tp = P, and the same mode
  // and deadline. Results are the same bits on every rank. A sequence's steps may change the mode
  // freely: all modes of as many ranks share its KV.
  //
  // A sequence that all ranks refuse is refused alone. INVALID_ARGUMENT: as Step, or a mode that
  // this engine cannot run in; nothing was run or sent. FAILED_PRECONDITION: the ranks were not
  // given the same step of the same model, in any field that can change a token (step_digest.h), or
  // refuse different sequences; the step ended at its first exchange. (Ranks whose first exchanges
  // are with others find out at the deadline.) UNAVAILABLE, DEADLINE_EXCEEDED: a collective failed.
  // In all three cases the step counts as failed at every rank, whatever the others saw; its
  // communicators are broken (aborted, so that nobody waits for the deadline) and the KV of its own
  // tokens is undefined, but earlier KV is untouched and the engine stays usable: the same step may
  // run again, in other company.
  virtual absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                                    StepProgress* progress,
                                    std::vector<SequenceResult>* results) = 0;

 private:
  struct Launched {
    std::shared_ptr<PreparedStep> step;
    absl::Status
        before;  // not OK: the step before had failed, and its launcher did not know it yet
  };

  // The sequences, which the thread that launches steps uses.
  SequenceTable& Sequences();
  void Loop();
  // Takes the first launched step and runs it to its end, unless the one before failed.
  void RunNext(std::unique_lock<std::mutex> lock);
  CompletedStep Run(PreparedStep* prepared);
  absl::Status RunPlan(const PreparedStep& prepared, std::vector<SequenceResult>* results);
  absl::Status RunRing(const PreparedStep& prepared, std::vector<SequenceResult>* results);
  absl::Status RunGroup(const PreparedStep& prepared, std::vector<SequenceResult>* results);

  const StepsRun steps_run_;
  std::unique_ptr<SequenceTable> sequences_;

  std::mutex mu_;
  std::condition_variable wake_;
  std::deque<Launched> waiting_;
  std::deque<CompletedStep> completed_;
  uint64_t running_number_ = 0;
  std::shared_ptr<StepProgress> running_;  // null: no step runs
  bool stopping_ = false;

  std::thread thread_;
};

// Whether a step that was launched while one with this status ran is not run either.
inline bool EndsTheNext(const absl::Status& status) {
  return !status.ok() && !absl::IsInvalidArgument(status);
}

}  // namespace skein::engine

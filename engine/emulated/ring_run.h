// One rank's part in one ring step of the emulated device. Internal to this folder.
//
// In order: the ranks meet, their messages tagged with what each believes the step to be, then
// those of each tensor group, and the step's time begins; blocks move, layer by layer; each rank
// compares the tags of its history with the prompt's and tells the others which blocks it holds;
// own spans are written; the rest of the time is slept, in slices with a word to the other ranks
// between them, so that an abort or a dead rank ends the step early; the ranks meet again. A
// finding (a wrong tag; a block of the history that no rank or more than one holds) does not fail
// the step: it poisons, on every rank, what is written and sampled.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/emulated/tagged_memory.h"
#include "engine/engine.h"

namespace skein::engine {

class RingRun {
 public:
  // All outlive the run. `sequence.ring` is set.
  RingRun(const EngineSpec& spec, std::span<const KvRegion> regions, const EmulatedTimes& times,
          int64_t digest_tokens, const SequenceStep& sequence);

  // As Engine::Step; `result` is empty. On every error the step's communicators are broken.
  absl::Status Run(StepProgress* progress, SequenceResult* result);

 private:
  absl::Status Check() const;
  absl::Status RunMet(StepProgress* progress, SequenceResult* result);
  absl::Status Meet();
  // The ranks that would share the dense part: each has a word of all others.
  absl::Status MeetTensorGroup() const;
  absl::Status Move(int layer);
  // The global indexes of this rank's history, by their tags; empty when one is wrong.
  std::vector<int32_t> KnownHistory() const;
  absl::Status CompareHistory();
  absl::Status Gather(Communicator* group, std::span<const std::byte> mine,
                      std::vector<std::byte>* all) const;
  absl::Status Sleep(int layer);
  void Write(int layer) const;
  void Answer(SequenceResult* result) const;
  uint64_t LinkAt(int64_t position) const;
  uint64_t Signature() const;

  const EngineSpec& spec_;
  const TaggedMemory memory_;
  const int64_t digest_tokens_;
  const SequenceStep& sequence_;
  const RingStep& step_;
  const int rank_;
  const int size_;
  int64_t history_tokens_ = 0;  // of all ranks
  int64_t tokens_ = 0;          // of all ranks
  double seconds_ = 0;
  std::vector<uint64_t> links_;  // of the prompt
  std::chrono::steady_clock::time_point start_;
  bool poisoned_ = false;
};

}  // namespace skein::engine

// GroupRecord: what a simulated group did: the outcome of each request, its steps by kind and by
// what their time went to, and its tokens in each second.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/base/time.h"
#include "scheduler/simulator/formations/sequence_batch.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

enum class StepKind { kOwn, kTp, kSp, kSpTp };
inline constexpr size_t kStepKinds = 4;

// What happened to a request.
struct GroupOutcome {
  TimeUs started_us = kNever;  // its first tokens entered a step
  TimeUs first_token_us = kNever;
  TimeUs last_token_us = kNever;
  TimeUs longest_gap_us = 0;  // between two of its tokens
  int64_t made = 0;           // output tokens
  bool refused = false;       // it is longer than the widest formation
};

class GroupRecord {
 public:
  struct Steps {
    int64_t count = 0;
    StepParts time;  // of all of them
  };

  explicit GroupRecord(size_t requests) : outcomes_(requests) {}

  void NoteRefused(size_t request) { outcomes_[request].refused = true; }
  // A step began: the sequences of `batch` that run in it.
  void NoteStarted(const SequenceBatch& batch, TimeUs now);
  void NoteStep(StepKind kind, const StepParts& time);
  void NoteShift() { ++shifts_; }
  // Tokens of a step that ends at `end_us`.
  void NoteTokens(int64_t tokens, TimeUs end_us);
  // The sequence made its `index`-th output token. REQUIRES: all before it were noted.
  void NoteOutput(const BatchSequence& sequence, int64_t index, TimeUs now);

  const std::vector<GroupOutcome>& outcomes() const { return outcomes_; }
  const std::array<Steps, kStepKinds>& steps() const { return steps_; }  // by StepKind
  int64_t shifts() const { return shifts_; }
  // Output tokens, and all tokens computed, in each second.
  const std::vector<int64_t>& output_by_second() const { return output_by_second_; }
  const std::vector<int64_t>& tokens_by_second() const { return tokens_by_second_; }
  TimeUs end_us() const { return end_us_; }  // of the last token

 private:
  std::vector<GroupOutcome> outcomes_;
  std::array<Steps, kStepKinds> steps_;
  int64_t shifts_ = 0;
  std::vector<int64_t> output_by_second_, tokens_by_second_;
  TimeUs end_us_ = 0;
};

}  // namespace skein::scheduler

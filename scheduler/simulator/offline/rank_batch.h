// The batch of one rank of an offline job: continuous batching, prompts in slices beside decode.
// With too little KV the youngest sequence is preempted and computed anew, as vLLM does.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "scheduler/simulator/formations/step_time.h"
#include "scheduler/simulator/offline/offline_load.h"

namespace skein::scheduler {

class RankBatch {
 public:
  struct Limits {
    int64_t kv_tokens = 0;
    int64_t sequences = 1;
    int64_t step_tokens = 8192;  // of decode and of prompts; decode is never cut
  };
  explicit RankBatch(const Limits& limits) : limits_(limits) {}

  // Takes requests from the front of `waiting` while there is room for their prompts. A batch
  // without sequences takes one in any case. REQUIRES each request's tokens <= kv_tokens.
  void Admit(std::deque<OfflineRequest>* waiting);

  // The next step; without tokens if there are no sequences.
  StepWork NextStep() const;
  // That step has run. Preempted requests go to the front of `waiting` with what they have computed
  // as prompt. Returns how many tokens of output it made.
  int64_t StepEnded(std::deque<OfflineRequest>* waiting);

  bool empty() const { return sequences_.empty(); }
  int64_t size() const { return static_cast<int64_t>(sequences_.size()); }
  int64_t preempted() const { return preempted_; }

 private:
  struct Sequence {
    int64_t prompt_left = 0;
    int64_t context = 0;  // tokens of KV
    int64_t output_left = 0;
  };
  int64_t SliceOf(const Sequence& sequence, int64_t budget) const;

  const Limits limits_;
  std::vector<Sequence> sequences_;  // the youngest last
  int64_t reserved_ = 0;             // tokens of KV, with what is left of prompts
  int64_t decoding_ = 0;             // sequences without prompt_left
  int64_t preempted_ = 0;
};

}  // namespace skein::scheduler

// The samples of skeinctl profile: which prompt lengths are sent, which of the measured chunks are
// used, and their medians. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/base/prefill_shape.h"
#include "scheduler/plan/latency/fit.h"
#include "services/skeinctl/planning/prefill_shapes.h"

namespace skein::services {

// The prompt lengths to send: evenly spaced on a log scale, ascending, unique.
std::vector<int64_t> PromptLengths(int64_t tokens_min, int64_t tokens_max, int count);

// The samples of a run in one shape, and the prompts that could not be used.
class ProfileSamples {
 public:
  explicit ProfileSamples(scheduler::PrefillShape shape = {.instances = 1}) : shape_(shape) {}

  const scheduler::PrefillShape& shape() const { return shape_; }
  // Adds a prompt and the chunks that were computed meanwhile. They are kept, with the number of
  // instances as their sp, if they are exactly the whole prompt in this shape; otherwise other
  // requests ran too, or it was computed in another shape.
  void Add(int64_t prompt_tokens, const std::vector<ChunkTime>& chunks);

  const std::vector<scheduler::LatencySample>& samples() const { return samples_; }
  // For people: how many prompts were unusable and why, by length, and which lengths were not
  // measured. Empty if all were used.
  std::string Unused() const;
  // Whether each length gave a sample.
  bool complete() const;

 private:
  struct Tally {
    int used = 0;
    int otherwise = 0;  // some of its tokens were computed in another shape
    int disturbed = 0;  // more tokens were computed than it has: other requests ran
  };
  scheduler::PrefillShape shape_;
  std::map<int64_t, Tally> lengths_;
  std::vector<scheduler::LatencySample> samples_;
};

// The median of the samples of each (SP size, history, chunk).
std::vector<scheduler::LatencySample> Medians(const std::vector<scheduler::LatencySample>& samples);

// As CSV with the header that `skeinctl fit` reads.
std::string SamplesCsv(const std::vector<scheduler::LatencySample>& samples);

}  // namespace skein::services

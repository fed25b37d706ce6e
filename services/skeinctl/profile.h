// skeinctl profile: measures the latency model of a running cluster.
//
// It sends prompts of many lengths, one at a time, asks the prefill-workers how long each chunk
// took that they computed alone, and fits equation 1 of Tetris (section 5.1) to the medians.
#pragma once

#include <string>
#include <vector>

#include "scheduler/plan/fit.h"
#include "services/base/flags.h"

namespace skein::services {

struct ProfileFlags {
  std::string orchestrator = "127.0.0.1:7100";
  std::string model;
  std::string samples_out;
  int64_t prompt_tokens_min = 16;
  int64_t prompt_tokens_max = 0;
  int64_t lengths = 24;
  int64_t rounds = 5;

  void Register(FlagSet* set);
};

// Exit code: 0; 1 when the cluster does not answer or the samples do not fit; 2 for flags that do
// not suit the cluster.
int RunProfile(const ProfileFlags& flags);

// Pure. The prompt lengths that are sent: spread evenly over their logarithm, ascending, unique.
std::vector<int64_t> PromptLengths(int64_t tokens_min, int64_t tokens_max, int count);

// Pure. The median of the samples of each (SP size, history, chunk).
std::vector<scheduler::LatencySample> Medians(std::vector<scheduler::LatencySample> samples);

// Pure. As CSV with the header that `skeinctl fit` reads.
std::string SamplesCsv(const std::vector<scheduler::LatencySample>& samples);

}  // namespace skein::services

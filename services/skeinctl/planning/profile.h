// skeinctl profile: measures the latency model of a running cluster, and what formations of its
// decode instances gain (formation_profile.h).
//
// It sends prompts of many lengths, one at a time, each planned on one instance, reads the
// durations of chunks computed alone from the prefill-workers, and fits equation 1 of Tetris
// (section 5.1) to the medians.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/plan/latency/fit.h"
#include "services/flags/flags.h"

namespace skein::services {

struct ProfileFlags {
  std::string orchestrator;  // empty: use FindOrchestrator
  std::string model;
  std::string samples_out;
  int64_t prompt_tokens_min = 16;
  int64_t prompt_tokens_max = 0;
  int64_t lengths = 24;
  int64_t rounds = 5;
  std::string formations = "auto";
  int64_t formation_rounds = 3;
  int64_t formation_streams = 32;
  int64_t formation_steps = 64;
  std::string format = "json";

  void Register(FlagSet* set);
};

// Exit code: 0; 1 if the cluster does not answer, the samples do not fit, or a requested length was
// not measured, or its formations (the profile of the others is still printed); 2 for flags that do
// not suit the cluster; 130 if a signal ended the measurement of formations, which prints
// nothing.
int RunProfile(const ProfileFlags& flags);

// Pure. The prompt lengths to send: evenly spaced on a log scale, ascending, unique.
std::vector<int64_t> PromptLengths(int64_t tokens_min, int64_t tokens_max, int count);

// Pure. The samples of a run, and the prompts that could not be used.
class ProfileSamples {
 public:
  // Adds a prompt and the chunks that instances computed alone meanwhile. They are kept if they are
  // exactly the whole prompt; otherwise other requests ran too, or several instances computed it.
  void Add(int64_t prompt_tokens, const std::vector<scheduler::LatencySample>& chunks);

  const std::vector<scheduler::LatencySample>& samples() const { return samples_; }
  // For people: how many prompts were unusable and why, by length, and which lengths were not
  // measured. Empty if all were used.
  std::string Unused() const;
  // Whether each length gave a sample.
  bool complete() const;

 private:
  struct Tally {
    int used = 0;
    int shared = 0;     // some of its tokens were computed by several instances together
    int disturbed = 0;  // more tokens were computed than it has: other requests ran
  };
  std::map<int64_t, Tally> lengths_;
  std::vector<scheduler::LatencySample> samples_;
};

// Pure. The median of the samples of each (SP size, history, chunk).
std::vector<scheduler::LatencySample> Medians(std::vector<scheduler::LatencySample> samples);

// Pure. As CSV with the header that `skeinctl fit` reads.
std::string SamplesCsv(const std::vector<scheduler::LatencySample>& samples);

}  // namespace skein::services

// skeinctl profile: measures the latency model of a running cluster, and what formations of its
// decode instances gain (formation_profile.h).
//
// It sends prompts of many lengths, one at a time, each in each shape of prefill instances
// (prefill_shapes.h), reads the durations of their chunks from the prefill-workers, and fits
// equation 1 of Tetris (section 5.1) to the medians.
#pragma once

#include <cstdint>
#include <string>

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
  std::string prefill_shapes = "auto";
  std::string formations = "auto";
  int64_t formation_rounds = 3;
  int64_t formation_streams = 32;
  int64_t formation_steps = 64;
  std::string format = "json";

  void Register(FlagSet* set);
};

// Exit code: 0; 1 if the cluster does not answer, or a part was not measured, or does not fit (the
// profile of the others is still printed); 2 for flags that do not suit the cluster; 130 if a
// signal ended the measurement of formations, which prints nothing.
int RunProfile(const ProfileFlags& flags);

}  // namespace skein::services

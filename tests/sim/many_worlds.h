// Worlds of many instances and long prompts without a fault: each request must end.
#pragma once

#include "tests/sim/scenario.h"

namespace skein::sim {

struct ManyShape {
  int prefill = 50;
  int decode = 2500;
  int clients = 256;  // that ask at a time, each again when it was answered
  int requests = 1536;
  int prompt_tokens = 8192;
  // Scenario::checks_every. A check of the orchestrator walks over all instances, so one at each
  // event would cost the square of their number.
  int checks_every = 100;
};
// Each answer has one token.
Scenario MakeManyScenario(const ManyShape& shape);

}  // namespace skein::sim

// Where a step's time goes: Ops that notes how long each call of another Ops takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/engine/bench_timer.h"
#include "engine/ops/ops.h"

namespace skein::bench {

// One call: what it was, the bytes of weights it reads, and its time.
struct OpCall {
  std::string name;
  double bytes = 0.0;
  double seconds = 0.0;
};

// Forwards to `ops`, adding each call to *calls, which outlives it.
std::unique_ptr<engine::Ops> MakeTimedOps(std::unique_ptr<engine::Ops> ops, Clock clock,
                                          std::vector<OpCall>* calls);

}  // namespace skein::bench

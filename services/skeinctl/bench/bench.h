// skeinctl bench: puts a load on an OpenAI-compatible server, Skein or another, and reports its
// latencies.
#pragma once

#include "services/skeinctl/bench/bench_flags.h"

namespace skein::services {

// Exit code: 0; 1 when the server cannot be reached, a file cannot be written, or a request failed
// (the report counts these); 2 for wrong flags or input; 130 when interrupted, after a report of
// the requests that had ended.
int RunBench(const bench::BenchFlags& flags);

}  // namespace skein::services

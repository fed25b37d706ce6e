// skeinctl bench: puts a load on an OpenAI-compatible server, Skein or another, and says how it
// bears it.
#pragma once

#include "services/skeinctl/bench/bench_flags.h"

namespace skein::services {

// Exit code: 0; 1 when the server cannot be reached, a file cannot be written, or a request failed
// (they are counted in the report); 2 for wrong flags or input; 130 when it was interrupted, after
// a report of what had ended.
int RunBench(const bench::BenchFlags& flags);

}  // namespace skein::services

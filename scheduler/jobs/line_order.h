// The order in which a job's lines are given: by tokens, the longest first, so that no long line
// begins when the others are done; lines of one prefix together, so that their KV is reused. A
// prefix stands where its longest line would.
#pragma once

#include <vector>

#include "scheduler/jobs/job_events.h"

namespace skein::scheduler::jobs {

// Sorts the lines; those of equal length keep the order of the file.
void OrderLines(std::vector<LineInfo>* lines);

}  // namespace skein::scheduler::jobs

// The orchestrator's part of a traced request, as spans, made of its explanation when it ends:
//
//   schedule       from its submission until its end, as the orchestrator knew it. Events: its
//                  chunks as their instances reported them, plans that were given up, and the
//                  switches of formations that it met
//     plan         for each plan: from the submission, or from the end of the plan before, until it
//                  was decided
//     placement    for each plan: from then until a decode instance had taken the blocks
//
// Pure, but for the random ids of spans.
#pragma once

#include "scheduler/orchestrator/orchestrator_events.h"
#include "services/tracing/tracer.h"

namespace skein::services {

// Nothing, if nobody wants its spans or `tracer` is null.
void RecordRequestSpans(const scheduler::TracedEnded& ended, Tracer* tracer);

}  // namespace skein::services

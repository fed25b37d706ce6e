// What the instances of a pool are foreseen to do: every chunk that is assigned and not finished,
// with equation 1's time. From it come the queue times that the planner plans with.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

struct TimelineChunk {
  PlanSequence sequence;  // chunks run in this order, those of one sequence by `index`
  size_t index = 0;
  Epoch plan;              // a chunk begins when the one before it of the same plan has ended
  std::vector<int> slots;  // of its instances
  double seconds = 0;      // the latency model's
  TimeUs running_since_us = kNever;  // kNever: it has not begun

  // From now, filled in by Foresee.
  double start_s = 0;
  double end_s = 0;
};

// Sorts the chunks and foresees when each begins and ends; (*free_s)[slot] becomes the time, from
// now, when all of the slot's chunks have ended. A running chunk that is late ends at any moment.
// REQUIRES slots below free_s->size().
void Foresee(TimeUs now, std::vector<TimelineChunk>* chunks, std::vector<double>* free_s);

}  // namespace skein::scheduler

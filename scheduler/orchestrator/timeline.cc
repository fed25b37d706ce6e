#include "scheduler/orchestrator/timeline.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace skein::scheduler {

void Foresee(TimeUs now, std::vector<TimelineChunk>* chunks, std::vector<double>* free_s) {
  std::sort(chunks->begin(), chunks->end(), [](const TimelineChunk& a, const TimelineChunk& b) {
    return std::tie(a.sequence, a.index) < std::tie(b.sequence, b.index);
  });
  std::fill(free_s->begin(), free_s->end(), 0.0);
  std::map<Epoch, double> plan_end_s;
  for (TimelineChunk& chunk : *chunks) {
    double& before_s = plan_end_s[chunk.plan];
    if (chunk.running_since_us != kNever) {
      const double ran_s = static_cast<double>(now - chunk.running_since_us) * 1e-6;
      chunk.start_s = 0;
      chunk.end_s = std::max(0.0, chunk.seconds - ran_s);
    } else {
      chunk.start_s = before_s;
      for (const int slot : chunk.slots) {
        chunk.start_s = std::max(chunk.start_s, (*free_s)[static_cast<size_t>(slot)]);
      }
      chunk.end_s = chunk.start_s + chunk.seconds;
    }
    before_s = chunk.end_s;
    for (const int slot : chunk.slots) {
      double& free = (*free_s)[static_cast<size_t>(slot)];
      free = std::max(free, chunk.end_s);
    }
  }
}

}  // namespace skein::scheduler

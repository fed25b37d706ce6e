// JobRoom: how many lines of offline jobs may be computed at a time, so that they take what online
// traffic leaves. The limit is halved at once when requests wait for an instance or for KV blocks,
// and again every fall_every_us while they do, down to none; it grows by an eighth, and at least by
// one line an instance, every grow_every_us while nothing waits, enough KV blocks are free and it
// is used up. So it swings around what fits, as a window of TCP does. Lines that run already are
// left alone: they have a lower priority than online requests, and instances preempt them.
#pragma once

#include <cstdint>

#include "scheduler/base/time.h"

namespace skein::scheduler::jobs {

// What the orchestrator knows of its cell.
struct ClusterLoad {
  int64_t instances = 0;  // decode instances that take requests; 0: no line can run
  int64_t waiting = 0;    // requests that wait for an instance or for KV blocks
  double free_kv = 0;     // the share of the decode instances' blocks that nothing holds
};

class JobRoom {
 public:
  struct Config {
    int64_t limit_max = 1024;
    double free_kv_min = 0.2;  // below it the limit does not grow
    TimeUs grow_every_us = kSecondUs;
    TimeUs fall_every_us = 250 * kMillisecondUs;
  };

  explicit JobRoom(const Config& config) : config_(config) {}

  // `in_flight`: lines that routers compute.
  void See(const ClusterLoad& load, int64_t in_flight, TimeUs now);
  int64_t limit() const { return limit_; }

 private:
  const Config config_;
  int64_t limit_ = 0;
  bool seen_ = false;  // instances, so that the limit is not the first one any more
  TimeUs grown_us_ = 0;
  TimeUs fallen_us_ = -kSecondUs;
};

}  // namespace skein::scheduler::jobs

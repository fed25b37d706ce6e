// LatestStreams: the number of the last stream that each worker and router has opened. A process
// numbers its streams, and a cut may hold a hello up until after the next one: it tells a state
// that the process has left since, and is refused. Part of WorkerSide and of RouterSide.
//
// A process that has gone stays in it: its hellos may still be on their way. Bounded: at most kMax
// processes; those that opened no stream for longest go first.
//
// Invariants (CheckInvariants): both tables have the same processes, and at most kMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace skein::scheduler {

class LatestStreams {
 public:
  static constexpr size_t kMax = 65536;
  using Process = std::pair<std::string, uint64_t>;  // its endpoint, and its incarnation

  // FAILED_PRECONDITION, and nothing changes: `stream` is not above the last one.
  absl::Status Take(const Process& process, uint64_t stream);
  absl::Status CheckInvariants() const;

 private:
  struct Latest {
    uint64_t stream = 0;
    uint64_t taken = 0;  // its key in by_age_
  };

  std::map<Process, Latest> latest_;
  std::map<uint64_t, Process> by_age_;
  uint64_t taken_ = 0;
};

}  // namespace skein::scheduler

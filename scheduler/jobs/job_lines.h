// JobLines: the lines of one job that had no result when it was loaded, and how each stands.
// Ready -> given -> keeping -> done; given and ready lines may change places any number of times,
// and a ready line may be answered, too (by a router that was given up).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "scheduler/jobs/job_events.h"

namespace skein::scheduler::jobs {

class JobLines {
 public:
  enum class State { kReady, kGiven, kKeeping, kDone };

  JobLines() = default;
  // All are ready. Lines of one number count once.
  explicit JobLines(std::vector<LineInfo> lines);

  std::optional<State> StateOf(uint64_t line) const;  // nullopt: there is no such line
  std::optional<uint64_t> Next() const;               // the ready line that is to be given first
  int64_t TokensOf(uint64_t line) const;              // estimated

  // REQUIRES that there is such a line, in the state before.
  void Give(uint64_t line);
  void TakeBack(uint64_t line);
  void Keep(uint64_t line);  // of a ready or given one
  void Done(uint64_t line);

  int64_t ready() const { return static_cast<int64_t>(ready_.size()); }
  int64_t given() const { return given_; }
  int64_t keeping() const { return keeping_; }
  int64_t left() const { return ready() + given_ + keeping_; }  // not done
  int64_t tokens_left() const { return tokens_left_; }          // estimated, of those
  absl::Status CheckInvariants() const;

 private:
  struct Line {
    uint64_t line = 0;
    int64_t tokens = 0;
    State state = State::kReady;
  };
  uint32_t PlaceOf(uint64_t line) const;

  std::vector<Line> lines_;                     // in the order in which they are given
  absl::btree_map<uint64_t, uint32_t> places_;  // in lines_, by line
  absl::btree_set<uint32_t> ready_;             // places
  int64_t given_ = 0;
  int64_t keeping_ = 0;
  int64_t tokens_left_ = 0;
};

}  // namespace skein::scheduler::jobs

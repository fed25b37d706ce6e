// CellOrchestrators: the orchestrators of one cell, of which one leads and the others stand by, and
// which of them is to be called next. Whoever calls one says when that failed, and asks for the
// next one.
//
// Attempts come in rounds. A round calls each orchestrator at most once, one right after the other,
// and ends when one has taken the call, or none is left. The owner decides when the next round
// begins, so its pause bounds what a cell without a leader costs.
//
// A standby names the leader, which is called next. But its word may be older than what this side
// knows: an orchestrator that has just failed is passed over for a while (kFailedUs, kSilentUs)
// although it is named, as long as another one answers. So a call waits at most once for an
// orchestrator that is stopped or cut off, until a successor has had the time to win its election.
// So is one that has led and says that it does so no longer (kSteppedDownUs): it may have stepped
// aside because nothing reaches it, and a call of it would wait for long.
//
// Thread-safe. Times: microseconds of a monotonic clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::services {

// "HOST:PORT+HOST:PORT": the orchestrators of a cell, each once. INVALID_ARGUMENT says which part
// is empty or there twice.
absl::StatusOr<std::vector<std::string>> ParseCell(std::string_view cell);

// Whether a call's status says that the connection failed or broke, or that the orchestrator's
// process ends, which cancels what it has just taken (CANCELLED). Not for a standby's answer.
bool OrchestratorIsGone(const absl::Status& status);

class CellOrchestrators {
 public:
  // The connection failed: a process that is gone, or restarts.
  static constexpr int64_t kFailedUs = 1'000'000;
  // It did not answer in time, which took a second or more. 3 s after its last answer another one
  // leads, also with etcd's leases.
  static constexpr int64_t kSilentUs = 2'000'000;
  // It stepped down. Another one that looks at the store claims the leadership within that.
  static constexpr int64_t kSteppedDownUs = 500'000;

  // As ParseCell takes it. REQUIRES: ParseCell accepts it.
  explicit CellOrchestrators(std::string_view cell);

  // The one to call: HOST:PORT, of the cell's or as a standby has named it.
  std::string Current() const;

  // A round begins with Current.
  void BeginRound();
  enum class Failure {
    kTransport,    // the connection failed, or broke
    kSilent,       // no answer in time
    kStandby,      // it stands by
    kSteppedDown,  // it led, and stands by now
  };
  // `orchestrator` failed. `leader`: as LeaderOf gives it, else empty. True: Current is one that
  // this round has not called yet, and that might do. False: the round is over, and Current is the
  // one with which the next should begin.
  bool Failed(const std::string& orchestrator, Failure how, const std::string& leader,
              int64_t now_us);
  // The same for the status of a call that did not do its work. An error that is a leader's own
  // answer changes nothing: false. `led`: it had taken the call as the leader.
  bool Failed(const std::string& orchestrator, const absl::Status& status, int64_t now_us,
              bool led = false);

 private:
  struct One {
    std::string endpoint;
    int64_t avoid_until_us = INT64_MIN;
    bool called = false;  // in this round
  };

  // The place of an endpoint in all_; a new one is added.
  size_t Find(const std::string& endpoint);
  // The next one of this round; nullopt: none is left.
  std::optional<size_t> Next(int64_t now_us) const;

  static constexpr size_t kNamedMax = 8;

  mutable std::mutex mutex_;  // guards all below
  size_t given_ = 0;          // the first so many of all_ stay; of the others, kNamedMax at most
  std::vector<One> all_;
  size_t current_ = 0;     // of all_
  bool answered_ = false;  // one of this round stands by, so a cell is there that will elect
};

}  // namespace skein::services

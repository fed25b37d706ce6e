// OrchestratorSession: a router's connection to an orchestrator. Opens the stream, says hello,
// reports, repeats ended requests until acknowledged, reopens a broken stream, refuses an
// orchestrator with an older generation, leaves. Part of RouterCore.
//
// A hello, a report or a goodbye that is not answered within answer_timeout_us closes the stream; a
// report already after a third of the lease.
// Bounded: at most kMaxEnded ends are remembered; the oldest go first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/backoff.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// ---- effects ----

// Each is for the orchestrator of the cell `cell`, by its place in the list that the router was
// given; RouterCore sets it.

// Open a stream to the orchestrator and send this as its first message, with the shell's parts of
// the load filled in. Answered by Welcomed or LinkBroken.
struct OpenLink {
  RouterHello hello;
  size_t cell = 0;
};
// Close the stream, if there is one; no event comes from it any more, LinkBroken included.
struct CloseLink {
  size_t cell = 0;
};
// Messages on the stream. A report and the goodbye are answered; an end is not.
struct SendRouterReport {
  RouterLoad load;
  size_t cell = 0;
};
struct SendRouterEnd {
  RouterEnd end;
  size_t cell = 0;
};
struct SendRouterGoodbye {
  size_t cell = 0;
};
// The router has left, or cannot reach the orchestrator to say so. Comes once; of the core when all
// sessions have ended so.
struct RouterHasLeft {};

using SessionEffect =
    std::variant<OpenLink, CloseLink, SendRouterReport, SendRouterGoodbye, RouterHasLeft>;

struct SessionConfig {
  TimeUs report_us = 500 * kMillisecondUs;  // between two reports; a third of the lease at most
  TimeUs report_spacing_us = 50 * kMillisecondUs;  // at least, between two
  TimeUs answer_timeout_us = 5 * kSecondUs;
  // The longest pause before the next attempt to open a stream; the first is an eighth of it.
  TimeUs retry_us = 300 * kMillisecondUs;
};

class OrchestratorSession {
 public:
  static constexpr size_t kMaxEnded = 4096;

  explicit OrchestratorSession(const SessionConfig& config)
      : config_(config), backoff_(config.retry_us / 8, config.retry_us) {}

  void Join(RouterIdentity identity, TimeUs now);
  void Leave() { leaving_ = true; }

  // False: the welcome is refused, or none is due. Due closes the stream then.
  bool OnWelcomed(const RouterWelcome& welcome, TimeUs now);
  void OnReportTaken(TimeUs now);
  void OnGoodbyeTaken();
  void OnBroken(const absl::Status& status, TimeUs now);

  // True: send it now. It is kept until acknowledged.
  bool Ended(RouterEnd end);
  void ReportSoon() { dirty_ = true; }

  // What is due now. `load` and `requests` are asked for only if they are told. A CloseLink is a
  // break to the core: it gets no other.
  template <class Load, class Requests>
  std::optional<SessionEffect> Due(TimeUs now, Load load, Requests requests) {
    if (phase_ == Phase::kOutside || phase_ == Phase::kLeft) return std::nullopt;
    if (AwaitsAnswer()) return now >= answer_by_us_ ? Close(now) : std::nullopt;
    if (leaving_) return SayGoodbye(now);
    if (phase_ == Phase::kAway) {
      return now >= next_us_ ? Open(load(), requests(), now) : std::nullopt;
    }
    if (now < spacing_end_us_ || (!dirty_ && now < next_us_)) return std::nullopt;
    return Report(load(), now);
  }
  TimeUs NextDeadline() const;

  // The stream stands and the orchestrator has answered the hello.
  bool ready() const {
    return phase_ == Phase::kReady || phase_ == Phase::kReporting || phase_ == Phase::kParting;
  }
  // How the stream was refused or broke last; OK before the first.
  const absl::Status& broken() const { return broken_; }
  const Generation& generation() const { return seen_; }
  // The orchestrator gives the router up when it has not heard of it for this long, and with it the
  // requests that are not placed. 0 before the first welcome.
  TimeUs lease_us() const { return lease_us_; }
  // INTERNAL: what does not fit together.
  absl::Status CheckInvariants() const;

 private:
  enum class Phase {
    kOutside,    // before Join
    kAway,       // no stream; the next attempt at next_us_
    kGreeting,   // the hello is not answered
    kRefused,    // the welcome was refused; Due closes the stream
    kReady,      // the stream stands, nothing is unanswered
    kReporting,  // a report is not answered
    kParting,    // the goodbye is not answered
    kLeft,
  };

  bool AwaitsAnswer() const {
    return phase_ == Phase::kGreeting || phase_ == Phase::kRefused || phase_ == Phase::kReporting ||
           phase_ == Phase::kParting;
  }
  void Await(Phase phase, TimeUs now);
  std::optional<SessionEffect> Close(TimeUs now);
  std::optional<SessionEffect> Open(RouterLoad load, std::vector<RouterRequest> requests,
                                    TimeUs now);
  std::optional<SessionEffect> Report(RouterLoad load, TimeUs now);
  std::optional<SessionEffect> SayGoodbye(TimeUs now);
  void EndsWereHeard();

  SessionConfig config_;
  RouterIdentity identity_;
  Phase phase_ = Phase::kOutside;
  bool leaving_ = false;
  bool dirty_ = false;
  TimeUs answer_by_us_ = kNever;  // while an answer is awaited
  TimeUs next_us_ = 0;            // away: the next attempt; ready: the next report at the latest
  TimeUs spacing_end_us_ = 0;
  TimeUs lease_us_ = 0;
  Backoff backoff_;
  absl::Status broken_;
  Generation seen_;
  uint64_t streams_ = 0;  // opened so far
  std::deque<RouterEnd> ended_;
  size_t ended_asked_ = 0;  // the first so many were sent before what is to be answered
};

}  // namespace skein::scheduler

// CoreShell: a core and the loop that owns it; the base of every shell. The loop handles events,
// passes each effect to the shell's On, and ticks the core when it asks. Any thread may ask for a
// copy of the core's snapshot, or for a check of the invariants.
//
//   class RouterShell : public CoreShell<RouterShell, RouterCore, RouterEvent, RouterSnapshot>
//
// An event that arrives while the effects of another are executed is queued and handled after them.
//
// The shell has an On for each effect. Optional, all called on the loop:
//   void Decided();              after an event, before its effects
//   void Saw(event, effects, now);   the same, with what was decided: for those who only watch
//   void Handled();              when nothing is queued any more
//   int64_t PartsDeadline();     next tick for the shell's own state; INT64_MAX: none
//   void TickParts();            before each tick of the core
//   absl::Status CheckParts();   invariants of the shell's own state
//   bool MayHandle();            false: the event is dropped, and with it all that are queued
// It stops the loop (loop_.Stop()) before any of its members is destroyed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "services/shell/loop.h"
#include "services/shell/spaced_check.h"

namespace skein::services {

template <class Shell, class Core, class Event, class Snapshot>
class CoreShell {
 public:
  using Inspection = std::function<void(const Snapshot&, const absl::Status& invariants)>;
  struct Copy {
    Snapshot snapshot;
    absl::Status invariants;  // what CheckInvariants found last; OK before the first
  };

  // Any thread. Accepts every event and returns no result. Events posted before StartCore are
  // handled after it.
  void Post(Event event, Loop::Caller caller = Loop::kBusy) {
    loop_.Post([this, event = std::move(event)]() mutable { Handle(std::move(event)); }, caller);
  }
  // What /metrics and /status read, on their own threads. The loop only makes the copy, ahead of
  // the messages that wait for it. Empty: the loop has stopped, or its inbox for urgent messages is
  // full. Not from the loop.
  std::optional<Copy> Look() { return StartLook().get(); }
  // The same without waiting.
  std::future<std::optional<Copy>> StartLook() {
    return StartCopy([this] { return core_->Snapshot(MonotonicUs()); });
  }
  // Runs `look` on the loop, after the events that were posted before, and waits. `invariants` is
  // the latest result of CheckInvariants. False: the loop has stopped. Not from the loop.
  bool Inspect(const Inspection& look) {
    return loop_.RunAndWait(
        [this, &look] { look(core_->Snapshot(MonotonicUs()), checked_.last()); });
  }
  // Checks the whole core on the loop, at most once a second; in between, returns the latest
  // result, which reports and Inspect also use. Not from the loop.
  absl::Status CheckInvariants() {
    absl::Status found = absl::UnavailableError("stopping");
    loop_.RunAndWait([this, &found] {
      found = checked_.Run(MonotonicUs(), [this] {
        absl::Status status = core_->CheckInvariants();
        status.Update(shell()->CheckParts());
        return status;
      });
    });
    return found;
  }

 protected:
  explicit CoreShell(size_t inbox) : loop_(inbox) {}
  ~CoreShell() = default;

  // Starts the loop's thread with the core's ticks. `tick` runs first.
  template <class Config>
  void StartCore(const std::string& name, const Config& config, const Event& tick) {
    core_.emplace(config);
    loop_.Start(
        name, [this] { return NextTick(); },
        [this, tick] {
          shell()->TickParts();
          Handle(tick);
        });
    Post(tick);
  }
  // As StartLook, with the snapshot that `make` returns on the loop.
  template <class Make>
  std::future<std::optional<Copy>> StartCopy(Make make) {
    auto promise = std::make_shared<std::promise<std::optional<Copy>>>();
    std::future<std::optional<Copy>> copy = promise->get_future();
    const bool taken = loop_.TryPostFirst([this, promise, make] {
      promise->set_value(Copy{make(), checked_.last()});
    });
    if (!taken) promise->set_value(std::nullopt);
    return copy;
  }
  // On the loop: from here on events are dropped and ticks stop. For a shell that needs the loop
  // until everything that the core has opened is closed.
  void StopCore() {
    stopped_ = true;
    queue_.clear();
  }

  // On the loop, after StopCore: begins anew, with another core. The shell has closed what the one
  // before had opened.
  template <class Config>
  void BeginCore(const Config& config, const Event& tick) {
    core_.emplace(config);
    queue_.clear();
    stopped_ = false;
    Handle(tick);
  }

  // On the loop.
  void Handle(Event event) {
    Queue(std::move(event));
    HandleQueued();
  }
  // Several at a time: HandleQueued has to follow.
  void Queue(Event event) { queue_.push_back(std::move(event)); }
  // The same, before all that is queued.
  void QueueFirst(Event event) { queue_.push_front(std::move(event)); }
  void HandleQueued() {
    if (stopped_) return queue_.clear();
    if (std::exchange(handling_, true)) return;
    while (!queue_.empty()) {
      if (!shell()->MayHandle()) {
        queue_.clear();
        break;
      }
      const Event next = std::move(queue_.front());
      queue_.pop_front();
      const int64_t now_us = MonotonicUs();
      auto effects = core_->Handle(next, now_us);
      shell()->Decided();
      shell()->Saw(next, std::as_const(effects), now_us);
      for (auto& effect : effects) {
        std::visit([this](auto& e) { shell()->On(e); }, effect);
      }
    }
    handling_ = false;
    shell()->Handled();
  }
  bool MayHandle() { return true; }
  void Decided() {}
  template <class Effects>
  void Saw(const Event&, const Effects&, int64_t) {}
  void Handled() {}
  int64_t PartsDeadline() { return INT64_MAX; }
  void TickParts() {}
  absl::Status CheckParts() { return absl::OkStatus(); }
  const absl::Status& invariants() const { return checked_.last(); }

  std::optional<Core> core_;  // set by StartCore; used only on the loop
  Loop loop_;

 private:
  Shell* shell() { return static_cast<Shell*>(this); }
  int64_t NextTick() {
    return stopped_ ? INT64_MAX : std::min(core_->NextDeadline(), shell()->PartsDeadline());
  }

  SpacedCheck checked_;
  // Only on the loop.
  std::deque<Event> queue_;
  bool handling_ = false;
  bool stopped_ = false;
};

}  // namespace skein::services

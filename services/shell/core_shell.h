// CoreShell: a core and the loop that owns it; the base of every shell. The loop handles events,
// passes each effect to the shell's On, and ticks the core when it asks. Any thread may take a
// snapshot or request a check of the invariants.
//
//   class DecodeShell : public CoreShell<DecodeShell, DecodeCore, DecodeEvent, DecodeSnapshot>
//
// The shell has an On for each effect. Optional, both called on the loop:
//   void Handled();              after the effects of an event
//   absl::Status CheckParts();   invariants of the shell's own state
// It stops the loop (loop_.Stop()) before any of its members is destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
  using Look = std::function<void(const Snapshot&, const absl::Status& invariants)>;

  // Any thread. Accepts every event and returns no result. Events posted before StartCore are
  // handled after it.
  void Post(Event event) {
    loop_.Post([this, event = std::move(event)] { Handle(event); });
  }
  // Runs `look` on the loop and waits. `invariants` is the latest result of CheckInvariants. False:
  // the loop has stopped. Not from the loop.
  bool Inspect(const Look& look) {
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
        name, [this] { return core_->NextDeadline(); }, [this, tick] { Handle(tick); });
    Post(tick);
  }

  // On the loop.
  void Handle(const Event& event) {
    Execute(event);
    shell()->Handled();
  }
  void Execute(const Event& event) {
    for (auto& effect : core_->Handle(event, MonotonicUs())) {
      std::visit([this](auto& e) { shell()->On(e); }, effect);
    }
  }
  void Handled() {}
  absl::Status CheckParts() { return absl::OkStatus(); }
  const absl::Status& invariants() const { return checked_.last(); }

  std::optional<Core> core_;  // set by StartCore; used only on the loop
  Loop loop_;

 private:
  Shell* shell() { return static_cast<Shell*>(this); }

  SpacedCheck checked_;
};

}  // namespace skein::services

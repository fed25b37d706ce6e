// CoreShell: a core and the loop that owns it, which every shell has. Events are handled on the
// loop, each effect by the shell's On; the core's ticks come when it wants them; anybody may look
// at a snapshot, and ask for a check of the invariants.
//
//   class DecodeShell : public CoreShell<DecodeShell, DecodeCore, DecodeEvent, DecodeSnapshot>
//
// The shell has an On for each effect, and may have
//   void Handled();              after the effects of an event
//   absl::Status CheckParts();   the invariants of what it has beside the core
// both on the loop. It stops the loop (loop_.Stop()) before anything of it goes.
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

  // Any thread; not answered, whatever the event. Taken before StartCore, too, and handled then.
  void Post(Event event) {
    loop_.Post([this, event = std::move(event)] { Handle(event); });
  }
  // Runs `look` on the loop and waits; `invariants` is what CheckInvariants found last. False: the
  // loop has stopped. Not from the loop.
  bool Inspect(const Look& look) {
    return loop_.RunAndWait(
        [this, &look] { look(core_->Snapshot(MonotonicUs()), checked_.last()); });
  }
  // Walks all that the core holds, on the loop, at most once a second; in between it returns what
  // it found last, which reports and Inspect tell. Not from the loop.
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

  // The loop's thread begins with `tick`, and gives it to the core whenever one is due.
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

  std::optional<Core> core_;  // from StartCore on; only on the loop
  Loop loop_;

 private:
  Shell* shell() { return static_cast<Shell*>(this); }

  SpacedCheck checked_;
};

}  // namespace skein::services

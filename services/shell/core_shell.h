// CoreShell: a core and the loop that owns it, which every shell has. Events are handled on the
// loop, each effect by the shell's On; the core's ticks come when it wants them; anybody may ask
// for a copy of the core's snapshot, and for a check of the invariants.
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

  // Any thread; not answered, whatever the event. Taken before StartCore, too, and handled then.
  void Post(Event event) {
    loop_.Post([this, event = std::move(event)] { Handle(event); });
  }
  // What /metrics and /status read, on their own threads: the loop makes the copy, ahead of the
  // messages that wait for it, and does no more for them. Empty: the loop has stopped, or as many
  // urgent messages wait as its inbox takes. Not from the loop.
  std::optional<Copy> Look() { return StartLook().get(); }
  // The same without waiting.
  std::future<std::optional<Copy>> StartLook() {
    auto promise = std::make_shared<std::promise<std::optional<Copy>>>();
    std::future<std::optional<Copy>> copy = promise->get_future();
    const bool taken = loop_.TryPostFirst([this, promise] {
      promise->set_value(Copy{core_->Snapshot(MonotonicUs()), checked_.last()});
    });
    if (!taken) promise->set_value(std::nullopt);
    return copy;
  }
  // Runs `look` on the loop, when it has handled what was posted before, and waits. False: the loop
  // has stopped. Not from the loop.
  bool Inspect(const Inspection& look) {
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

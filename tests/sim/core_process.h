// A process around one core: hands it events with its local time, executes its effects, ticks it
// when it asks, and checks its invariants after every event.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "tests/sim/network.h"

namespace skein::sim {

// Keeps the run's first violation, which ends the run.
class Verdict {
 public:
  void Violated(std::string what) {
    if (what_.empty()) what_ = std::move(what);
  }
  void Require(bool holds, const std::string& what) {
    if (!holds) Violated(what);
  }
  bool ok() const { return what_.empty(); }
  const std::string& what() const { return what_; }

 private:
  std::string what_;
};

// Calls that a core has not answered yet. Answering one twice is a violation.
template <class Reply>
class Unanswered {
 public:
  scheduler::CallId Add(scheduler::CallId call, std::function<void(Reply)> reply) {
    calls_.emplace(call, std::move(reply));
    return call;
  }
  void Answer(scheduler::CallId call, Reply reply, Verdict* verdict) {
    const auto it = calls_.find(call);
    if (it == calls_.end()) return verdict->Violated("a call was answered twice");
    const std::function<void(Reply)> send = std::move(it->second);
    calls_.erase(it);
    send(std::move(reply));
  }
  size_t size() const { return calls_.size(); }
  void clear() { calls_.clear(); }

 private:
  std::map<scheduler::CallId, std::function<void(Reply)>> calls_;
};

// What an event or effect is about, for the trace.
template <class T>
uint64_t About(const T& value) {
  if constexpr (requires { value.id.serial; }) return value.id.serial;
  if constexpr (requires { value.spec->id.serial; }) return value.spec->id.serial;
  if constexpr (requires { value.request.id.serial; }) return value.request.id.serial;
  if constexpr (requires { value.request.spec->id.serial; }) return value.request.spec->id.serial;
  return 0;
}

// The request that an event is about, if it names one.
template <class T>
std::optional<scheduler::RequestId> RequestOf(const T& event) {
  if constexpr (requires { scheduler::RequestId(event.id); }) return event.id;
  if constexpr (requires { event.spec->id; }) return event.spec->id;
  if constexpr (requires { scheduler::RequestId(event.request.id); }) return event.request.id;
  if constexpr (requires { event.request.spec->id; }) return event.request.spec->id;
  return std::nullopt;
}

// Derived has Execute(Effect alternative&) for every alternative, and kStates, and may have
// Executed(), which runs after the effects of an event, and MayHandle(): false drops the event.
template <class Derived, class Core, class Event, class Effect, class TickEvent>
class CoreProcess : public Process {
 public:
  CoreProcess(Network* network, std::string endpoint, TimeUs clock_offset_us, Verdict* verdict)
      : Process(network, std::move(endpoint), clock_offset_us), verdict_(verdict) {}

  const Core* core() const { return core_.get(); }

 protected:
  void Run(std::unique_ptr<Core> core) {
    core_ = std::move(core);
    armed_us_ = scheduler::kNever;
    Dispatch(TickEvent{});
  }

  void Dispatch(const Event& event) {
    if constexpr (requires { static_cast<Derived*>(this)->MayHandle(); }) {
      if (!static_cast<Derived*>(this)->MayHandle()) return;
    }
    Trace& trace = network_->trace();
    const TimeUs now = network_->time().now();
    std::visit([&]<class T>(const T& e) { trace.Note(now, endpoint(), TypeName<T>(), About(e)); },
               event);
    const std::string_view before = NoteCoverage(event);
    std::vector<Effect> effects = core_->Handle(event, LocalNow());
    const std::string_view after = StateAt(event);
    if (after != before) network_->coverage().Enter(Derived::States(), after);
    if (handled_++ % network_->scenario().checks_every == 0) Check();
    for (Effect& effect : effects) {
      std::visit(
          [&]<class T>(T& e) {
            trace.Note(now, endpoint(), TypeName<T>(), About(e));
            static_cast<Derived*>(this)->Execute(e);
          },
          effect);
    }
    if constexpr (requires { static_cast<Derived*>(this)->Executed(); }) {
      static_cast<Derived*>(this)->Executed();
    }
    if (alive()) Arm();
  }

  void OnClockJump() override {
    armed_us_ = scheduler::kNever;
    Arm();
  }

  void Check() {
    const absl::Status invariants = core_->CheckInvariants();
    if (invariants.ok()) return;
    verdict_->Violated(absl::StrCat(endpoint(), ": ", std::string(invariants.message())));
  }

  // Runs `event` later, if the process is still the same then.
  void DispatchAfter(TimeUs delay, Event event) {
    After(delay, [this, event = std::move(event)] { Dispatch(event); });
  }

  scheduler::CallId NextCall() { return {++last_call_}; }

  Verdict* verdict_;
  std::unique_ptr<Core> core_;

 private:
  // Of the event's request.
  std::string_view StateAt(const Event& event) const {
    const auto id = std::visit([](const auto& e) { return RequestOf(e); }, event);
    if (!id.has_value()) return kNotOfOne;
    const std::string_view state = core_->StateOf(*id);
    return state.empty() ? kNoRequest : state;
  }
  // Returns that state.
  std::string_view NoteCoverage(const Event& event) {
    const CoreStates& states = Derived::States();
    const std::string_view state = StateAt(event);
    const bool known = state == kNotOfOne || state == kNoRequest ||
                       std::count(states.states.begin(), states.states.end(), state) > 0;
    if (!known) verdict_->Violated(absl::StrCat("an unknown state: ", std::string(state)));
    network_->coverage().Count<Event>(states, state, event.index());
    return state;
  }

  void Arm() {
    const TimeUs deadline = core_->NextDeadline();
    if (deadline == scheduler::kNever || deadline >= armed_us_) return;
    armed_us_ = deadline;
    const TimeUs delay = deadline - LocalNow();
    After(delay > 0 ? delay : 1, [this, deadline] {
      if (armed_us_ != deadline) return;  // an earlier one was armed meanwhile
      armed_us_ = scheduler::kNever;
      Dispatch(TickEvent{});
    });
  }

  TimeUs armed_us_ = scheduler::kNever;
  uint64_t last_call_ = 0;
  uint64_t handled_ = 0;  // events
};

}  // namespace skein::sim

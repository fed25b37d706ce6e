// The store of orchestrators that elect a leader: the entries of one election, with leases
// (scheduler/election). What was committed outlives the process. While it is dead no lease ends;
// when it is back, each lasts for its whole time again, as in etcd.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/election/election_core.h"
#include "scheduler/election/testing/election_register.h"
#include "tests/sim/network.h"

namespace skein::sim {

inline constexpr char kStore[] = "store";

// What those who watch the store are told.
struct StoreNews {
  scheduler::ElectionView view;
  std::string leader;  // its endpoint; empty: none leads
};

// The answer to a call: how it ended, and what the store had then.
struct StoreReply {
  absl::Status status = absl::OkStatus();
  scheduler::ElectionEvent::Any event;
  StoreNews news;
};

class StoreProcess : public Process {
 public:
  using Process::Process;

  // From here on `tell` runs at `watcher`, if it lives and can be reached, after each change. News
  // may be lost, and may come in another order. REQUIRES: it has not started.
  void TellBy(Process* watcher, std::function<void(const StoreNews&)> tell) {
    watchers_.emplace_back(watcher, std::move(tell));
  }

  // Called by other processes.
  template <class Call>
  StoreReply Handle(const Call& call, const std::string& caller) {
    StoreReply reply;
    Change([&] {
      reply.event = register_.Handle(call, network_->time().now());
      const bool claims = std::is_same_v<Call, scheduler::ElectionEffect::Claim>;
      if (claims && std::holds_alternative<scheduler::ElectionEvent::Committed>(reply.event)) {
        leader_ = caller;
      }
    });
    return reply;
  }
  StoreNews News() const;

 protected:
  void OnStart() override;
  void OnCrash() override {}
  void OnClockJump() override {}  // its leases are in the world's time

 private:
  void Change(const std::function<void()>& action);
  void Tell(Process* watcher, const std::function<void(const StoreNews&)>& tell);

  scheduler::ElectionRegister register_;
  std::string leader_;                      // of the entry, while there is one
  TimeUs looks_at_us_ = scheduler::kNever;  // at its leases
  std::vector<std::pair<Process*, std::function<void(const StoreNews&)>>> watchers_;
};

}  // namespace skein::sim

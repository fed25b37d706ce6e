// What both worker shells do with the orchestrator: register (which is logged), report, unregister,
// and tell it of an operator's order that came to the worker itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "scheduler/worker/membership_events.h"

namespace grpc {
class Channel;
}

namespace skein::services {

class CallTracker;

class MembershipCalls {
 public:
  // `calls` outlives this; `channel` leads to the orchestrator. The callbacks run on gRPC threads.
  MembershipCalls(CallTracker* calls, std::shared_ptr<grpc::Channel> channel)
      : calls_(calls), channel_(std::move(channel)) {}

  // `refused` is called with why, on a gRPC thread, when the orchestrator has answered nothing but
  // FAILED_PRECONDITION to registrations for more than two leases of instances: this worker does
  // not go with the others of its model, and these live. Instances that died count until their
  // lease ends. May be called again. Before the first Register.
  void OnRefused(std::function<void(const absl::Status&)> refused) {
    refused_ = std::move(refused);
  }
  void Register(const scheduler::CallRegister& call,
                std::function<void(scheduler::RegisterReplied)> done);
  void Report(const scheduler::CallReport& call,
              std::function<void(scheduler::ReportReplied)> done);
  void Unregister(const scheduler::CallUnregister& call,
                  std::function<void(scheduler::UnregisterReplied)> done);

  // Whether the orchestrator lets this worker drain; waits for at most a second. It does if it
  // cannot be asked. FAILED_PRECONDITION: no other serves in its place.
  absl::Status MayDrain();
  // Tells the orchestrator, as soon as it can be reached, to order the same; until then what it
  // orders does not count. Any thread.
  void OrderDrain(bool drain);

 private:
  void CountRefusal(const absl::Status& status);
  void Tell();
  void Told(const absl::Status& status, uint64_t order);
  void TakeReply(uint64_t serial, scheduler::ReportReply* reply);

  CallTracker* const calls_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::function<void(const absl::Status&)> refused_;
  std::mutex mutex_;                         // guards all below
  scheduler::InstanceId instance_;           // 0: not registered yet
  std::optional<int64_t> refused_since_us_;  // MonotonicUs() of the first of the present refusals
  uint64_t last_serial_ = 0;                 // of reports
  std::optional<bool> order_;                // untold
  uint64_t orders_ = 0;                      // counts them
  bool telling_ = false;
  uint64_t deaf_until_serial_ = 0;  // answers to reports up to this one are older than our order
};

}  // namespace skein::services

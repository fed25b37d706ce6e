// What both worker shells do with the orchestrator: register (which is logged), report, unregister.
#pragma once

#include <functional>
#include <memory>
#include <string>

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

  void Register(const scheduler::CallRegister& call,
                std::function<void(scheduler::RegisterReplied)> done);
  void Report(const scheduler::CallReport& call,
              std::function<void(scheduler::ReportReplied)> done);
  void Unregister(const scheduler::CallUnregister& call,
                  std::function<void(scheduler::UnregisterReplied)> done);

 private:
  CallTracker* const calls_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace skein::services

#include "services/worker/worker_rpc.h"

#include <utility>

#include "proto/orchestrator.grpc.pb.h"
#include "services/base/rpc.h"
#include "services/codec/codec.h"

namespace skein::services {

void MembershipCalls::Register(const scheduler::CallRegister& call,
                               std::function<void(scheduler::RegisterReplied)> done) {
  std::shared_ptr<v1::Orchestrator::Stub> stub = v1::Orchestrator::NewStub(channel_);
  CallUnary<v1::RegisterResponse>(
      "orchestrator", calls_, ToProto(call.request), call.timeout_us,
      [stub](auto* c, auto* q, auto* r, auto f) { stub->async()->Register(c, q, r, std::move(f)); },
      [done = std::move(done)](absl::Status status, const v1::RegisterResponse& response) {
        done({{std::move(status),
               {response.instance()},
               static_cast<int64_t>(response.lease_us())}});
      });
}

void MembershipCalls::Report(const scheduler::CallReport& call,
                             std::function<void(scheduler::ReportReplied)> done) {
  std::shared_ptr<v1::Orchestrator::Stub> stub = v1::Orchestrator::NewStub(channel_);
  CallUnary<v1::ReportResponse>(
      "orchestrator", calls_, ToProto(call.request), call.timeout_us,
      [stub](auto* c, auto* q, auto* r, auto f) { stub->async()->Report(c, q, r, std::move(f)); },
      [done = std::move(done), serial = call.request.serial](absl::Status status,
                                                             const v1::ReportResponse& response) {
        scheduler::ReportReplied replied{serial, {std::move(status), {}}};
        if (replied.reply.status.ok()) {
          if (auto reply = FromProto(response); reply.ok()) {
            replied.reply = *std::move(reply);
          } else {
            replied.reply.status = reply.status();
          }
        }
        done(std::move(replied));
      });
}

void MembershipCalls::Unregister(const scheduler::CallUnregister& call,
                                 std::function<void(scheduler::UnregisterReplied)> done) {
  std::shared_ptr<v1::Orchestrator::Stub> stub = v1::Orchestrator::NewStub(channel_);
  v1::UnregisterRequest request;
  request.set_instance(call.request.instance.value);
  request.set_incarnation(call.request.incarnation.value);
  CallUnary<v1::UnregisterResponse>(
      "orchestrator", calls_, std::move(request), call.timeout_us,
      [stub](auto* c, auto* q, auto* r, auto f) {
        stub->async()->Unregister(c, q, r, std::move(f));
      },
      [done = std::move(done)](absl::Status status, const v1::UnregisterResponse&) {
        done({{std::move(status)}});
      });
}

}  // namespace skein::services

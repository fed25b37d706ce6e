#include "services/worker/worker_rpc.h"

#include <string>
#include <utility>

#include "proto/orchestrator.grpc.pb.h"
#include "services/base/log.h"
#include "services/base/rpc.h"
#include "services/codec/codec.h"

namespace skein::services {
namespace {

using OrchestratorMethods = v1::Orchestrator::StubInterface::async_interface;

void LogRegistration(const absl::Status& status, const v1::RegisterResponse& response) {
  if (!status.ok()) {
    LogWarning("registration failed", {{"why", std::string(status.message())}});
  } else {
    LogInfo("registered", {{"instance", response.instance()}});
  }
}

}  // namespace

void MembershipCalls::Register(const scheduler::CallRegister& call,
                               std::function<void(scheduler::RegisterReplied)> done) {
  CallUnary<v1::Orchestrator>(
      "orchestrator", channel_, &OrchestratorMethods::Register, calls_, ToProto(call.request),
      call.timeout_us,
      [done = std::move(done)](absl::Status status, const v1::RegisterResponse& response) {
        LogRegistration(status, response);
        done({{std::move(status),
               {response.instance()},
               static_cast<int64_t>(response.lease_us())}});
      });
}

void MembershipCalls::Report(const scheduler::CallReport& call,
                             std::function<void(scheduler::ReportReplied)> done) {
  CallUnary<v1::Orchestrator>("orchestrator", channel_, &OrchestratorMethods::Report, calls_,
                              ToProto(call.request), call.timeout_us,
                              [done = std::move(done), serial = call.request.serial](
                                  absl::Status status, const v1::ReportResponse& response) {
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
  v1::UnregisterRequest request;
  request.set_instance(call.request.instance.value);
  request.set_incarnation(call.request.incarnation.value);
  CallUnary<v1::Orchestrator>(
      "orchestrator", channel_, &OrchestratorMethods::Unregister, calls_, std::move(request),
      call.timeout_us,
      [done = std::move(done)](absl::Status status, const v1::UnregisterResponse&) {
        done({{std::move(status)}});
      });
}

}  // namespace skein::services

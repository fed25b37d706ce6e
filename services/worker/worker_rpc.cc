#include "services/worker/worker_rpc.h"

#include <chrono>
#include <string>
#include <utility>

#include "proto/orchestrator.grpc.pb.h"
#include "services/base/log.h"
#include "services/base/loop.h"
#include "services/base/rpc.h"
#include "services/codec/answer.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"

namespace skein::services {
namespace {

using OrchestratorMethods = v1::Orchestrator::StubInterface::async_interface;

constexpr int64_t kAskTimeoutUs = 1'000'000;
// The orchestrator's clock of leases stands still while it does not listen: one lease may seem
// longer here than there.
constexpr int64_t kRefusedLeases = 2;
constexpr auto kAskTimeout = std::chrono::microseconds(kAskTimeoutUs);

void LogRegistration(const scheduler::RegisterReply& reply) {
  if (!reply.status.ok()) {
    LogWarning("registration failed", {{"reason", std::string(reply.status.message())}});
  } else {
    LogInfo("registered", {{"instance", reply.instance.value}});
  }
}

}  // namespace

void MembershipCalls::Register(const scheduler::CallRegister& call,
                               std::function<void(scheduler::RegisterReplied)> done) {
  CallUnary<v1::Orchestrator>(
      "orchestrator", channel_, &OrchestratorMethods::Register, calls_, ToProto(call.request),
      call.timeout_us,
      [this, done = std::move(done)](absl::Status status, const v1::RegisterResponse& response) {
        scheduler::RegisterReply reply = AnswerOf("orchestrator", std::move(status), response);
        LogRegistration(reply);
        if (reply.status.ok()) {
          std::lock_guard lock(mutex_);
          instance_ = reply.instance;
        }
        CountRefusal(reply.status);
        done({std::move(reply)});
      });
}

void MembershipCalls::CountRefusal(const absl::Status& status) {
  const int64_t now_us = MonotonicUs();
  int64_t refused_us = 0;
  {
    std::lock_guard lock(mutex_);
    if (!absl::IsFailedPrecondition(status)) {
      refused_since_us_.reset();
      return;
    }
    if (!refused_since_us_.has_value()) refused_since_us_ = now_us;
    refused_us = now_us - *refused_since_us_;
  }
  if (refused_us == 0 || !refused_) return;
  CallUnary<v1::Orchestrator>(
      "orchestrator", channel_, &OrchestratorMethods::ListModels, calls_, v1::ListModelsRequest(),
      kAskTimeoutUs,
      [this, status, refused_us](const absl::Status& asked, const v1::ListModelsResponse& models) {
        if (!asked.ok()) return;
        const auto lease_us = LeaseFrom("instance_lease_us", models.instance_lease_us());
        if (lease_us.ok() && refused_us > kRefusedLeases * *lease_us) refused_(status);
      });
}

void MembershipCalls::Report(const scheduler::CallReport& call,
                             std::function<void(scheduler::ReportReplied)> done) {
  {
    std::lock_guard lock(mutex_);
    last_serial_ = call.request.serial;
  }
  CallUnary<v1::Orchestrator>("orchestrator", channel_, &OrchestratorMethods::Report, calls_,
                              ToProto(call.request), call.timeout_us,
                              [this, done = std::move(done), serial = call.request.serial](
                                  absl::Status status, const v1::ReportResponse& response) {
                                scheduler::ReportReplied replied{
                                    serial, AnswerOf("orchestrator", std::move(status), response)};
                                if (replied.reply.status.ok()) TakeReply(serial, &replied.reply);
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

absl::Status MembershipCalls::MayDrain() {
  v1::DrainRequest request;
  {
    std::lock_guard lock(mutex_);
    request.set_instance(instance_.value);
  }
  if (request.instance() == 0) return absl::OkStatus();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAskTimeout);
  v1::DrainResponse response;
  const grpc::Status asked =
      v1::Orchestrator::NewStub(channel_)->Drain(&context, request, &response);
  if (asked.error_code() != grpc::StatusCode::FAILED_PRECONDITION) return absl::OkStatus();
  return absl::FailedPreconditionError(asked.error_message());
}

void MembershipCalls::OrderDrain(bool drain) {
  {
    std::lock_guard lock(mutex_);
    order_ = drain;
    ++orders_;
  }
  Tell();
}

void MembershipCalls::Tell() {
  v1::DrainRequest request;
  uint64_t order = 0;
  {
    std::lock_guard lock(mutex_);
    if (!order_.has_value() || telling_ || instance_.value == 0) return;
    telling_ = true;
    order = orders_;
    request.set_instance(instance_.value);
    request.set_undo(!*order_);
    request.set_force(true);
  }
  CallUnary<v1::Orchestrator>(
      "orchestrator", channel_, &OrchestratorMethods::Drain, calls_, std::move(request),
      kAskTimeoutUs,
      [this, order](const absl::Status& status, const v1::DrainResponse&) { Told(status, order); });
}

// Otherwise the next report that is answered tries again.
void MembershipCalls::Told(const absl::Status& status, uint64_t order) {
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    telling_ = false;
    if (status.ok() && order == orders_) {
      order_.reset();
      deaf_until_serial_ = last_serial_;
    }
    again = status.ok() && order_.has_value();
  }
  if (again) Tell();
}

void MembershipCalls::TakeReply(uint64_t serial, scheduler::ReportReply* reply) {
  {
    std::lock_guard lock(mutex_);
    if (order_.has_value() || serial <= deaf_until_serial_) reply->drain.reset();
  }
  Tell();
}

}  // namespace skein::services
